"""The name that the paper's README gives to collect_translation_stats.py in this folder.

    python collect_classification_stats.py --datasets multi30k --out_file results/stats.pkl

The same script under another name: see collect_translation_stats.py --help.
"""

from collect_translation_stats import main

from attention_dynamics.cli import run_script

if __name__ == "__main__":
    run_script(main)

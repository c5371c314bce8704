S = "SequenceCopying"
S_NAME = (
    f"vocab{{num_vocab}}seq_length{config[S]['seq_length']}bsize{config[S]['bsize']}no_rep"
)
S_NAMES = expand(S_NAME, num_vocab=config[S]["num_vocab"])


rule copying:
    output:
        update(f"{S}/logs/{S_NAME}.pkl"),
    params:
        sizes=f"--seq_length {config[S]['seq_length']} --bsize {config[S]['bsize']}",
        options=f"{config[S]['options']} {config['options'].get('copying', '')}".strip(),
    log:
        f"{S}/logs/{S_NAME}.log",
    threads: threads_of(S, "copying")
    resources:
        **need(S, "copying"),
    shell:
        # The seeds are independent: fewer processes, where there are fewer cores, change no result.
        command(
            S, "copying", "seq2seq.py --no_rep --num_vocab {wildcards.num_vocab} {params} --jobs {threads}"
        )


rule copying_figures:
    input:
        expand(rules.copying.output, num_vocab=config[S]["num_vocab"]),
    output:
        multiext(f"{S}/figures/copying_{'_'.join(S_NAMES)}", ".svg", ".json"),
    params:
        names=" ".join(S_NAMES),
    log:
        f"{S}/logs/copying_figures.log",
    resources:
        **need(S, "figures"),
    shell:
        command(S, "figures", "plot_copying.py --names {params}")


rule toy_dynamics:
    output:
        f"{S}/figures/toy_dynamics.svg",
    log:
        f"{S}/logs/toy_dynamics.log",
    resources:
        **need(S, "figures"),
    shell:
        command(S, "figures", "toy_dynamics.py")


rule all_copying:
    input:
        rules.copying_figures.output,
        rules.toy_dynamics.output,

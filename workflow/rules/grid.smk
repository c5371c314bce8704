# What the rules share: the grid's options and resources, and the command of a job.
import jsonschema
import yaml

SCHEMA = yaml.safe_load(Path(workflow.basedir, "schema.yaml").read_text())
# Options that determine the names of output files: settings of the grid, not options of a step.
NAMED = ("--dataset", "--seed", "--config", "--embed_dim", "--exp_name", "--out_file", "--out_dir")


def fail(message):
    """End with one line on stderr."""
    print(f"{GRID}: {message}", file=sys.stderr)
    sys.exit(2)


def check_grid():
    error = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(SCHEMA).iter_errors(config))
    if error:
        where = ": ".join(map(str, error.absolute_path)) or "the grid"
        fail(f"{where}: {error.message.splitlines()[0]}")
    steps = [
        (f"{folder}: {step}", text)
        for folder in ("classification", "translation")
        for step, text in [
            *config[folder]["options"].items(),
            *((f"{d}: {s}", t) for d, o in config[folder]["only"].items() for s, t in o.items()),
        ]
    ]
    for where, text in [*steps, *(("options", text) for text in config["options"].values())]:
        for word in text.split():
            if word.split("=")[0] in NAMED:
                fail(f"{where}: {word} determines file names; change the grid's own setting instead")


check_grid()


def model_of(folder):
    """The model config of an experiment, which determines the names of its runs."""
    path = Path(folder, config[folder]["config"])
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        fail(f"{folder}: config: {path} cannot be read ({error})")


def dataset_of(wildcards):
    """The name of a dataset, also of its directory in translation/data/."""
    name = wildcards.dataset
    return name.replace("-", "_") if name.startswith("news-commentary") else name


def options(folder, step):
    """A function of the wildcards: the options of a step for a dataset; the last of each counts."""

    def of_dataset(wildcards):
        settings = config[folder]
        given = settings["only"].get(dataset_of(wildcards), {}).get(step, settings["options"][step])
        return f"{given} {config['options'].get(step, '')}".strip()

    return of_dataset


def source(folder):
    """A function of the wildcards: the options of prepare_data.py that name the texts of a dataset.

    Without a source in the grid there are none, and prepare_data.py says what is missing.
    """

    def of_dataset(wildcards):
        given = config[folder]["sources"].get(dataset_of(wildcards), "")
        return given if given.startswith("-") or not given else f"--source {shlex.quote(given)}"

    return of_dataset


def log_config(folder):
    """A function of the wildcards: the log config that comes with the repository, else nothing."""

    def of_dataset(wildcards):
        known = wildcards.dataset in config[folder]["log_configs"]
        return [f"{folder}/configs/{wildcards.dataset}_log.json"] if known else []

    return of_dataset


def make_log_config(folder):
    """A function of the wildcards: --make_log_config for a dataset without a log config."""

    def of_dataset(wildcards):
        return "" if wildcards.dataset in config[folder]["log_configs"] else "--make_log_config"

    return of_dataset


def runs_of(folder, pattern, dataset):
    """The run.json of all runs of a dataset; with missing_runs=ignore, of those that exist."""
    runs = [
        pattern.format(dataset=dataset, seed=seed, kind=kind)
        for kind, seeds in config[folder]["seeds"].items()
        for seed in seeds
    ]
    ignore = config.get("missing_runs") == "ignore"
    return [run for run in runs if not ignore or Path(run).exists()]


def need(folder, step):
    """The resources of a step: memory in MB, minutes, and whatever else the grid names."""
    found = {**config["resources"]["default"], **config["resources"].get(folder, {}).get(step, {})}
    found.pop("threads", None)
    return found


def threads_of(folder, step):
    found = {**config["resources"]["default"], **config["resources"].get(folder, {}).get(step, {})}
    return found.get("threads", 1)


def command(folder, step, call):
    """The shell command of a script, which runs in its folder and writes to the log.

    Under SLURM it is a job step of its own: SLURM sends SIGTERM only to the first process of a
    step, which has to be the script, so that it saves its state. The number of threads is that of
    the grid even where Snakemake has fewer cores: it is part of what makes a run reproducible.
    """
    threads = threads_of(folder, step)
    return (
        f"exec >{{log}} 2>&1; cd {folder}; export OMP_NUM_THREADS={threads}; "
        f"exec ${{{{SLURM_JOB_ID:+srun --overlap --nodes=1 --ntasks=1 --cpus-per-task={threads}}}}} "
        f"{shlex.quote(config.get('python', sys.executable))} {call}"
    )

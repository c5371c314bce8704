P = "papa"
P_OUT = f"{P}/outputs/{{folder}}"
P_TOKENS = ("ner", "pos", "chunk")
P_GLUE = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli")
# folder: (model, task)
P_FOLDERS = {
    f"{Path(model).name}_{task}": (model, task) for model, task in map(str.split, config[P]["runs"])
}


def papa_pair(folder):
    """The model and the task of a folder in outputs/."""
    if folder not in P_FOLDERS:
        fail(f"papa: {folder} is not in runs; add its model and task")
    return P_FOLDERS[folder]


def papa_kind(wildcards):
    return "ner" if papa_pair(wildcards.folder)[1].rpartition("_")[2] in P_TOKENS else "glue"


def papa_common(wildcards):
    """The options of all scripts; the last part of a task's name, after _, is the task."""
    model, task = papa_pair(wildcards.folder)
    name = task.rpartition("_")[2]
    known = f"--task_name {name} " if name in (*P_GLUE, *P_TOKENS) else ""
    own = f"{config[P]['tasks'].get(task, '')} {config['options'].get('all', '')}".strip()
    return f"--model_name_or_path {shlex.quote(model)} {known}{config[P]['options']['all']} {own}"


def papa_files(wildcards):
    return [f"{P}/{file}" for file in config[P]["files"].get(papa_pair(wildcards.folder)[1], [])]


def runs_in(folder):
    """The run.json of each number of constant heads and each seed."""
    model = papa_pair(folder)[0]
    if model not in config[P]["heads"]:
        fail(f"papa: heads: the numbers of constant heads of {model} are missing")
    return [
        f"{P}/outputs/{folder}/results/{heads}_seed{seed}/run.json"
        for heads in config[P]["heads"][model]
        for seed in config[P]["seeds"]
    ]


P_TRAIN = f"{config[P]['options']['train']} {config['options'].get('train', '')}".strip()


rule papa_toy:
    output:
        train=f"{P}/data/toy/train.tsv",
        dev=f"{P}/data/toy/dev.tsv",
    log:
        f"{P}/logs/toy.log",
    resources:
        **need(P, "toy"),
    shell:
        command(P, "toy", "toy.py")


rule papa_constants:
    input:
        papa_files,
    output:
        update(f"{P_OUT}/constants/avgs.pt"),
    params:
        kind=papa_kind,
        common=papa_common,
    log:
        f"{P}/logs/{{folder}}_constants.log",
    threads: threads_of(P, "constants")
    resources:
        **need(P, "constants"),
    shell:
        command(
            P,
            "constants",
            "run_papa_{params.kind}_avgs_creator.py {params.common} --per_device_train_batch_size 8 "
            "--output_dir outputs/{wildcards.folder}/constants",
        )


rule papa_order:
    input:
        papa_files,
        rules.papa_constants.output,
    output:
        update(f"{P_OUT}/sorted/sorted_heads.json"),
    params:
        kind=papa_kind,
        common=papa_common,
        train=P_TRAIN,
    log:
        f"{P}/logs/{{folder}}_sorted.log",
    threads: threads_of(P, "order")
    resources:
        **need(P, "order"),
    shell:
        command(
            P,
            "order",
            "run_papa_{params.kind}.py {params.common} {params.train} --sort_calculating true "
            "--static_heads_dir outputs/{wildcards.folder}/constants "
            "--output_dir outputs/{wildcards.folder}/sorted",
        )


rule papa_run:
    input:
        papa_files,
        rules.papa_constants.output,
        rules.papa_order.output,
    output:
        update(f"{P_OUT}/results/{{heads}}_seed{{seed}}/run.json"),
    params:
        kind=papa_kind,
        common=papa_common,
        train=P_TRAIN,
        run=config[P]["options"]["run"],
    log:
        f"{P}/logs/{{folder}}_{{heads}}_seed{{seed}}.log",
    threads: threads_of(P, "run")
    resources:
        **need(P, "run"),
    shell:
        command(
            P,
            "run",
            "run_papa_{params.kind}.py {params.common} {params.train} "
            "--grad_for_classifier_only true {params.run} "
            "--static_heads_dir outputs/{wildcards.folder}/constants "
            "--sorting_heads_dir outputs/{wildcards.folder}/sorted "
            "--static_heads_num {wildcards.heads} --seed {wildcards.seed} "
            "--output_dir outputs/{wildcards.folder}/results/{wildcards.heads}_seed{wildcards.seed}",
        )


rule papa_results:
    input:
        lambda wildcards: runs_in(wildcards.folder),
    output:
        f"{P}/results/{{folder}}.json",
    log:
        f"{P}/logs/{{folder}}_results.log",
    resources:
        **need(P, "results"),
    shell:
        command(
            P,
            "results",
            "collect_papa_stats.py --folders outputs/{wildcards.folder} "
            "--out_file results/{wildcards.folder}.json",
        )


rule papa_figures:
    input:
        lambda wildcards: [run for folder in P_FOLDERS for run in runs_in(folder)],
    output:
        multiext(f"{P}/figures/", "scores.svg", *(f"{f}_lambdas.svg" for f in P_FOLDERS)),
    params:
        folders=" ".join(f"outputs/{folder}" for folder in P_FOLDERS),
    log:
        f"{P}/logs/figures.log",
    resources:
        **need(P, "figures"),
    shell:
        command(P, "figures", "plot_papa.py --folders {params}")


rule all_papa:
    input:
        expand(rules.papa_results.output, folder=P_FOLDERS),
        rules.papa_figures.output,


# The targets of papa_runs.sh.


rule papa_orders:
    input:
        expand(rules.papa_order.output, folder=P_FOLDERS),


rule papa_runs:
    input:
        lambda wildcards: [run for folder in P_FOLDERS for run in runs_in(folder)],

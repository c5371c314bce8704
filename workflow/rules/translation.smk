T = "translation"
T_RUN = str(paths.run_folder("{dataset}", model_of(T), "{seed}", False)).removesuffix("normal")
T_RUN = f"{T}/{T_RUN}{{kind}}/run.json"


def translation_data_of(wildcards):
    """The vocabulary of a dataset; the directories of news-commentary have dashes in their names."""
    news = wildcards.dataset.startswith("news_commentary")
    data = wildcards.dataset.replace("_", "-") if news else wildcards.dataset
    return f"{T}/data/{data}/{data}.model"


rule translation_data:
    output:
        f"{T}/data/{{dataset}}/{{dataset}}.model",
    params:
        dataset=dataset_of,
        source=source(T),
        options=options(T, "data"),
    log:
        f"{T}/logs/data_{{dataset}}.log",
    retries: 0
    resources:
        **need(T, "data"),
    shell:
        command(T, "data", "prepare_data.py --dataset {params} --overwrite")


rule translation_train:
    input:
        translation_data_of,
    output:
        update(T_RUN),
    params:
        uniform=lambda wildcards: "--uniform" * (wildcards.kind == "uniform"),
        config=f"--config {config[T]['config']}",
        options=options(T, "train"),
    log:
        f"{T}/logs/train_{{dataset}}_{{seed}}_{{kind}}.log",
    threads: threads_of(T, "train")
    resources:
        **need(T, "train"),
    shell:
        command(
            T,
            "train",
            "train_translation.py --dataset {wildcards.dataset} --seed {wildcards.seed} {params} "
            f"--threads {threads_of(T, 'train')}",
        )


rule translation_dump:
    input:
        translation_data_of,
        lambda wildcards: runs_of(T, T_RUN, wildcards.dataset),
        ancient(log_config(T)),
    output:
        update(f"{T}/{paths.logs_path('{dataset}')}"),
    params:
        config=f"--config {config[T]['config']}",
        log_config=make_log_config(T),
        options=options(T, "dump"),
    log:
        f"{T}/logs/dump_{{dataset}}.log",
    threads: threads_of(T, "dump")
    resources:
        **need(T, "dump"),
    shell:
        command(
            T,
            "dump",
            "eval_dump.py --dataset {wildcards.dataset} {params} "
            f"--threads {threads_of(T, 'dump')}",
        )


rule translation_embedding:
    input:
        translation_data_of,
    output:
        update(f"{T}/{paths.translation_beta_path('{dataset}', 256)}"),
    params:
        options=options(T, "embedding"),
    log:
        f"{T}/logs/embedding_{{dataset}}.log",
    threads: threads_of(T, "embedding")
    resources:
        **need(T, "embedding"),
    shell:
        command(
            T,
            "embedding",
            "embedding_beta.py --dataset {wildcards.dataset} {params} "
            f"--threads {threads_of(T, 'embedding')}",
        )


rule translation_ibm1:
    input:
        translation_data_of,
    output:
        update(f"{T}/{paths.ibm1_beta_path('{dataset}')}"),
    params:
        options=options(T, "ibm1"),
    log:
        f"{T}/logs/ibm1_{{dataset}}.log",
    resources:
        **need(T, "ibm1"),
    shell:
        command(T, "ibm1", "ibm1_beta.py --dataset {wildcards.dataset} {params}")


T_MEASURED = [
    *rules.translation_dump.output,
    *rules.translation_embedding.output,
    *rules.translation_ibm1.output,
]


rule translation_results:
    input:
        T_MEASURED,
    output:
        f"{T}/results/{{dataset}}.pkl",
    params:
        options=options(T, "results"),
    log:
        f"{T}/logs/results_{{dataset}}.log",
    resources:
        **need(T, "results"),
    shell:
        command(
            T,
            "results",
            "collect_translation_stats.py --datasets {wildcards.dataset} "
            "--out_file results/{wildcards.dataset}.pkl {params}",
        )


rule translation_figures:
    input:
        T_MEASURED,
    output:
        multiext(f"{T}/figures/{{dataset}}_", "val_acc_top5.svg", "val_acc_tau.svg", "matrices.html"),
    params:
        options=options(T, "figures"),
    log:
        f"{T}/logs/figures_{{dataset}}.log",
    resources:
        **need(T, "figures"),
    shell:
        command(T, "figures", "plot_dynamics.py --dataset {wildcards.dataset} {params}")


rule all_translation:
    input:
        expand(rules.translation_results.output, dataset=config[T]["datasets"]),
        expand(rules.translation_figures.output, dataset=config[T]["datasets"]),


# The targets of the batch files.


rule translation_train_runs:
    input:
        [runs_of(T, T_RUN, dataset) for dataset in config[T]["datasets"]],


rule translation_dump_logs:
    input:
        expand(T_MEASURED, dataset=config[T]["datasets"]),

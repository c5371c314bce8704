C = "classification"
C_RUN = str(paths.run_folder("{dataset}", model_of(C), "{seed}", False)).removesuffix("normal")
C_RUN = f"{C}/{C_RUN}{{kind}}/run.json"


rule classification_data:
    output:
        train=f"{C}/data/{{dataset}}_train.json",
        test=f"{C}/data/{{dataset}}_test.json",
    params:
        source=source(C),
        options=options(C, "data"),
    log:
        f"{C}/logs/data_{{dataset}}.log",
    retries: 0
    resources:
        word_vectors=1,  # data/w2v.pkl is shared by all datasets: one job at a time
        **need(C, "data"),
    shell:
        command(C, "data", "prepare_data.py --dataset {wildcards.dataset} {params} --overwrite")


rule classification_train:
    input:
        rules.classification_data.output,
    output:
        update(C_RUN),
    params:
        uniform=lambda wildcards: "--uniform" * (wildcards.kind == "uniform"),
        config=f"--config {config[C]['config']}",
        options=options(C, "train"),
    log:
        f"{C}/logs/train_{{dataset}}_{{seed}}_{{kind}}.log",
    threads: threads_of(C, "train")
    resources:
        **need(C, "train"),
    shell:
        command(
            C,
            "train",
            "train_classifier.py --dataset {wildcards.dataset} --seed {wildcards.seed} {params} "
            f"--threads {threads_of(C, 'train')}",
        )


rule classification_dump:
    input:
        rules.classification_data.output,
        lambda wildcards: runs_of(C, C_RUN, wildcards.dataset),
        ancient(log_config(C)),
    output:
        update(f"{C}/{paths.logs_path('{dataset}')}"),
    params:
        config=f"--config {config[C]['config']}",
        log_config=make_log_config(C),
        options=options(C, "dump"),
    log:
        f"{C}/logs/dump_{{dataset}}.log",
    threads: threads_of(C, "dump")
    resources:
        **need(C, "dump"),
    shell:
        command(
            C,
            "dump",
            "eval_dump.py --dataset {wildcards.dataset} {params} "
            f"--threads {threads_of(C, 'dump')}",
        )


rule classification_embedding:
    input:
        rules.classification_data.output,
    output:
        update(f"{C}/{paths.embedding_beta_path('{dataset}', 256)}"),
    params:
        options=options(C, "embedding"),
    log:
        f"{C}/logs/embedding_{{dataset}}.log",
    threads: threads_of(C, "embedding")
    resources:
        **need(C, "embedding"),
    shell:
        command(
            C,
            "embedding",
            "embedding_beta.py --dataset {wildcards.dataset} {params} "
            f"--threads {threads_of(C, 'embedding')}",
        )


rule classification_logistic:
    input:
        rules.classification_data.output,
    output:
        update(f"{C}/{paths.logistic_beta_path('{dataset}')}"),
    params:
        options=options(C, "logistic"),
    log:
        f"{C}/logs/logistic_{{dataset}}.log",
    resources:
        **need(C, "logistic"),
    shell:
        command(C, "logistic", "logistic_beta.py --dataset {wildcards.dataset} {params}")


C_MEASURED = [
    *rules.classification_dump.output,
    *rules.classification_embedding.output,
    *rules.classification_logistic.output,
]


rule classification_results:
    input:
        C_MEASURED,
    output:
        f"{C}/results/{{dataset}}.pkl",
    params:
        options=options(C, "results"),
    log:
        f"{C}/logs/results_{{dataset}}.log",
    resources:
        **need(C, "results"),
    shell:
        command(
            C,
            "results",
            "collect_classification_stats.py --datasets {wildcards.dataset} "
            "--out_file results/{wildcards.dataset}.pkl {params}",
        )


rule classification_figures:
    input:
        C_MEASURED,
    output:
        multiext(f"{C}/figures/{{dataset}}_", "val_top5.svg", "val_tau.svg", "tokens.html"),
    params:
        options=options(C, "figures"),
    log:
        f"{C}/logs/figures_{{dataset}}.log",
    resources:
        **need(C, "figures"),
    shell:
        command(C, "figures", "plot_dynamics.py --dataset {wildcards.dataset} {params}")


rule all_classification:
    input:
        expand(rules.classification_results.output, dataset=config[C]["datasets"]),
        expand(rules.classification_figures.output, dataset=config[C]["datasets"]),


# The targets of the batch files.


rule classification_train_runs:
    input:
        [runs_of(C, C_RUN, dataset) for dataset in config[C]["datasets"]],


rule classification_dump_logs:
    input:
        expand(rules.classification_dump.output, dataset=config[C]["datasets"]),


rule classification_embedding_runs:
    input:
        expand(rules.classification_embedding.output, dataset=config[C]["datasets"]),


rule classification_logistic_runs:
    input:
        expand(rules.classification_logistic.output, dataset=config[C]["datasets"]),

"""Datasets of the Hugging Face hub; the only module that uses the network, and only when asked."""

from attention_dynamics.cli import InputError


def resolve_revision(repository: str, revision: str | None) -> str:
    """The commit of a repository to read: ``revision``, or the newest one now.

    No commit is built in: none could be checked where this was written, and an unchecked one pins
    nothing. The one that is used is printed and kept in ``about.json``; give it as ``--revision``
    to get the same bytes again. Either way the row counts are checked against the distribution.

    Raises InputError within seconds when the hub cannot be reached or has no such revision.
    """
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(repository, revision=revision, timeout=10).sha
    except Exception as error:  # what fails here has a type per HTTP library and version
        raise _failed(repository, error) from None


def load_splits(repository: str, revision: str, *configuration: str):
    """The splits of a repository, {name: rows}; InputError when the download fails.

    ``configuration``: its name, where a repository has several.
    """
    import datasets

    try:
        return datasets.load_dataset(repository, *configuration, revision=revision)
    except Exception as error:
        raise _failed(repository, error) from None


def use_cache_without_network() -> None:
    """When the hub cannot be reached, let its libraries read what they have cached, or fail, now.

    Else they try again for up to a minute for each name. Call it before something is loaded from
    the hub (models and tokenisers included); with ``HF_HUB_OFFLINE=1`` nothing is asked.
    """
    import datasets
    from huggingface_hub import constants, get_session

    if not constants.HF_HUB_OFFLINE:
        try:
            get_session().head(constants.ENDPOINT, timeout=5)
        except Exception:  # what fails here has a type per HTTP library and version
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


def load_cached_splits(repository: str, *configuration: str, cache_dir: str | None, advice: str):
    """The splits of a repository, {name: rows}, from ``cache_dir`` (the library's own when None)
    where they are there already.

    Raises InputError, which ends on ``advice``, when there is neither network nor cache, or no such
    repository or configuration; within seconds.
    """
    import datasets

    use_cache_without_network()
    try:
        return datasets.load_dataset(repository, *configuration, cache_dir=cache_dir)
    except Exception as error:
        name = " ".join((repository, *configuration))
        raise InputError(
            f"{name} could not be downloaded from the Hugging Face hub ({_reason(error)}); {advice}"
        ) from None


def check_columns(where: str, there: list[str], wanted: set[str]) -> None:
    """Refuse rows (of the repository and split ``where``) that lack one of the wanted columns."""
    if missing := wanted - set(there):
        raise InputError(
            f"{where} has no column {', '.join(sorted(missing))}; it has {', '.join(there)}: the "
            "repository has changed, give an older --revision"
        )


def _failed(repository: str, error: Exception) -> InputError:
    return InputError(
        f"--download cannot get {repository} from the Hugging Face hub ({_reason(error)}); check "
        "network and --revision, or get the distribution by other means and give it as --source"
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__

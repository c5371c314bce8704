"""Datasets of the Hugging Face hub; the only module that uses the network, and only when asked."""

import contextlib
from collections.abc import Iterator

from attention_dynamics.cli import InputError

_ADVICE = "check network and --revision, or download the distribution and give it as --source"


def resolve_revision(repository: str, revision: str | None) -> str:
    """The commit of a repository to read: ``revision``, or the newest one now.

    No commit is built in, since none could be checked where this was written. The one that is used
    is printed and stored in ``about.json``; give it as ``--revision`` to get the same bytes again.

    Raises InputError within seconds when the hub cannot be reached or has no such revision.
    """
    from huggingface_hub import HfApi

    with _naming(repository, _ADVICE):
        return HfApi().dataset_info(repository, revision=revision, timeout=10).sha


def load_splits(repository: str, *configuration: str, advice: str = _ADVICE, **options):
    """The splits of a repository, {name: rows}; InputError, which ends on ``advice``, if it fails.

    ``configuration`` is its name, where a repository has several; ``options`` are those of
    ``datasets.load_dataset``.
    """
    import datasets

    with _naming(" ".join((repository, *configuration)), advice):
        return datasets.load_dataset(repository, *configuration, **options)


def use_cache_without_network() -> None:
    """If the hub cannot be reached, let its libraries read their cache instead of retrying.

    They would retry for up to a minute per name. Call it before anything is loaded from the hub
    (models and tokenizers included); with ``HF_HUB_OFFLINE=1`` nothing is asked.
    """
    import datasets
    from huggingface_hub import constants, get_session

    if not constants.HF_HUB_OFFLINE:
        try:
            get_session().head(constants.ENDPOINT, timeout=5)
        except Exception:  # one type per HTTP library and version
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


def check_columns(where: str, there: list[str], wanted: set[str]) -> None:
    """Reject rows (of the repository and split ``where``) that lack one of the wanted columns."""
    if missing := wanted - set(there):
        raise InputError(
            f"{where} has no column {', '.join(sorted(missing))}; it has {', '.join(there)}: the "
            "repository has changed, give an older --revision"
        )


@contextlib.contextmanager
def _naming(name: str, advice: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # one type per HTTP library and version
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(
            f"{name} could not be downloaded from the Hugging Face hub ({reason}); {advice}"
        ) from None

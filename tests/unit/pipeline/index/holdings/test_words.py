"""What fits into a word."""

from __future__ import annotations

from typing import get_type_hints

from pipeline.index.holdings.words import MOST_SIZES, pool_of, size_code_of, word_of
from schemas.settings import Worker


def test_every_size_code_that_the_settings_allow_fits() -> None:
    (bounds,) = get_type_hints(Worker, include_extras=True)["max_pool_sizes"].__metadata__
    assert bounds.le <= MOST_SIZES
    word = word_of(5, MOST_SIZES - 1, 1)
    assert (pool_of(word), size_code_of(word)) == (5, MOST_SIZES - 1)

"""Comparison of a reader's prediction with the answer, and tables of predicted and measured numbers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from gpusim.errors import ConfigError
from gpusim.report.number_format import number

if TYPE_CHECKING:
    import pandas as pd

Answerable = float | str
"""Type of a prediction: a number, or the word of a choice."""

CLOSE_PCT = 10.0
"""Percent by which a correct number may be off: about the simulator's accuracy for validation kernels."""

DIGITS = 4
"""Significant digits of a number that is no integer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A prediction and its answer; Jupyter shows it as a sentence."""

    prediction: Answerable | None
    """Reader's prediction; None before the reader has made one."""
    answer: Answerable
    unit: str
    close_pct: float = CLOSE_PCT

    @property
    def error_pct(self) -> float | None:
        """Error of a predicted number in percent of the answer; None for words and for an answer of 0."""
        if self.prediction is None or isinstance(self.prediction, str) or isinstance(self.answer, str) or not self.answer:
            return None
        return 100.0 * (self.prediction - self.answer) / self.answer

    @property
    def is_right(self) -> bool:
        """Whether words are equal, or a number is at most ``close_pct`` off."""
        if isinstance(self.prediction, str) and isinstance(self.answer, str):
            return self.prediction.strip().casefold() == self.answer.casefold()
        error = self.error_pct
        return self.prediction == self.answer if error is None else abs(error) <= self.close_pct

    def __str__(self) -> str:
        """Sentence with the prediction, the verdict and the answer."""
        answer = f"The answer: {self._text(self.answer)}."
        if self.prediction is None:
            return f"No prediction yet: put one in the place of the dots and run the cell again. {answer}"
        error = self.error_pct
        if self.is_right:
            verdict = "right" if not error else f"right, {abs(error):.1f} % {'more' if error > 0 else 'less'}"
        else:
            verdict = "not so" if error is None else f"{abs(error):.0f} % {'too much' if error > 0 else 'too little'}"
        return f"You said {self._text(self.prediction)}: {verdict}. {answer}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        mark = "…" if self.prediction is None else "✓" if self.is_right else "✗"
        return f"<p><b>{mark}</b> {html.escape(str(self))}</p>"

    def _text(self, value: Answerable) -> str:
        if isinstance(value, float) and value != round(value):
            value = float(f"{value:.{DIGITS}g}") if abs(value) < 10 ** (DIGITS - 1) else round(value)
        return f"{number(value)} {self.unit}".strip()


def compare(
    prediction: Answerable | EllipsisType | None, answer: Answerable, unit: str = "", *, close_pct: float = CLOSE_PCT
) -> Comparison:
    """Compare a reader's prediction with the answer; dots (``...``) mean no prediction yet.

    >>> compare(..., 32, "wavefronts")
    No prediction yet: put one in the place of the dots and run the cell again. The answer: 32 wavefronts.
    >>> compare(16, 32, "wavefronts")
    You said 16 wavefronts: 50 % too little. The answer: 32 wavefronts.
    >>> compare(..., 1.827891, "times")
    No prediction yet: put one in the place of the dots and run the cell again. The answer: 1.828 times.
    >>> compare("L2", "l2").is_right, compare(33, 32, "cycles").is_right
    (True, True)

    Args:
        prediction: a number in ``unit``, or a word.
        answer: a number or a word, as the prediction.
        unit: unit of both numbers; empty for words and counts.
        close_pct: largest error of a correct number, in percent of the answer.

    Raises:
        ConfigError: a word where the answer is a number, or a number where it is a word.
    """
    made = None if isinstance(prediction, EllipsisType) else prediction
    found = answer if isinstance(answer, str) else float(answer)
    if made is not None and isinstance(made, str) != isinstance(found, str):
        wanted = "one of the words that the text names" if isinstance(found, str) else f"a number of {unit or 'things'}"
        raise ConfigError(f"prediction {made!r}: wants {wanted}")
    guess = made if made is None or isinstance(made, str) else float(made)
    return Comparison(prediction=guess, answer=found, unit=unit, close_pct=close_pct)


def error_table(
    predicted: Mapping[Any, float] | Sequence[float], measured: Mapping[Any, float] | Sequence[float], unit: str,
    *, index: str = "",
) -> pd.DataFrame:
    """Table of predictions and measurements, with errors in percent of the measured value.

    >>> error_table({"padded": 66.0, "naive": 150.0}, {"padded": 60.0, "naive": 160.0}, "cycles").round(1).to_dict("list")
    {'predicted (cycles)': [66.0, 150.0], 'measured (cycles)': [60.0, 160.0], 'error (%)': [10.0, -6.2]}

    Args:
        predicted: numbers, or numbers by label.
        measured: numbers in equal number, or with equal labels.
        unit: unit of all numbers.
        index: name of the labels.

    Raises:
        ConfigError: labels or lengths differ.
    """
    import pandas as pd

    first, second = (dict(of) if isinstance(of, Mapping) else dict(enumerate(of)) for of in (predicted, measured))
    if set(first) != set(second):
        raise ConfigError(f"error_table: predicted are {list(first)}, measured {list(second)}: wants the same of both")
    table = pd.DataFrame({f"predicted ({unit})": first, f"measured ({unit})": {label: second[label] for label in first}})
    table["error (%)"] = 100.0 * (table.iloc[:, 0] - table.iloc[:, 1]) / table.iloc[:, 1]
    table.index.name = index or None
    return table

"""The hand-made result, for tests of this folder."""

from tests.hand_made_result import make_result_fixture, result

__all__ = ["make_result_fixture", "result"]

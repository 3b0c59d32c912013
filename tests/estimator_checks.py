"""scikit-learn's checks of an estimator as one case, which names every check that failed."""

import warnings

from sklearn.utils.estimator_checks import check_estimator


def assert_is_an_estimator(estimator: object, expected: dict[str, str] | None = None) -> None:
    """Run all checks. Those in ``expected``, by name with the reason, must fail: else the list is out of date."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=expected)
    failed = [f"{each['check_name']}: {each['exception']!r}" for each in results if each["status"] == "failed"]
    assert not failed, "\n".join(failed)
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(expected or {})
    assert sum(each["status"] == "passed" for each in results) > 30

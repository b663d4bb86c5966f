"""How long the site of all committed results takes to make."""

import pytest

from tests.browser.conftest import Made

pytestmark = pytest.mark.browser
MOST_SECONDS = 75  # of processor: two cores share most of it, and a minute is what a reader waits


def test_it_is_made_in_a_minute(made: Made) -> None:
    if made.seconds is None:
        pytest.skip("REPORT_SITE was made before")
    assert made.seconds < MOST_SECONDS

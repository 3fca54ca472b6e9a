"""Numbers as `snug` prints them. What is said of a ratio is worked out from them, so that a page agrees with itself
(docs/decisions/0021). Pure."""


def text(value):
    """Three significant digits, of at most six decimals, or all whole ones: 0.123, 1.23, 12.3, 123, 1234."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{min(2 - exponent, 6)}f}" if abs(value) >= 5e-7 else "0.00"


def number(value):
    """What a reader takes a printed value for."""
    return float(text(value))


def count(value):
    """What a reader takes a printed count for: from 10,000 on it is in thousands, from 1,000,000 on in millions."""
    factor = 1e6 if value >= 1e6 else 1e3 if value >= 1e4 else 1
    return number(value / factor) * factor

"""One line of a benchmark's output, as tests/bench/figure.h prints it."""

import json


def show(figure, value, unit, yardstick, theirs):
    line = {"figure": figure, "value": float(f"{value:.4g}"), "unit": unit, "yardstick": yardstick, "yardstick_value": None, "ratio": None}
    if theirs:
        line |= {"yardstick_value": float(f"{theirs:.4g}"), "ratio": float(f"{value / theirs:.4g}")}
    print(json.dumps(line), flush=True)

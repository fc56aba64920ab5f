"""Plots a GPU benchmark's CSV: each program's time as a ratio to cuBLAS's plain product, fused and unfused.

    python3 bench/plot.py bench/results/h200_llama.csv bench/results/h200_llama_unfused.csv docs/performance.png

The first file gives the fused times; the second, measured with the unfused sequence as a third side, those of that.
Needs matplotlib.
"""
import csv
import math
import sys
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def rows(source):
    with open(source, newline="") as f:
        for row in csv.DictReader(f):
            if not row["fault"]:
                yield row, row["program"] if row["group"] != "small" else "linear, small and odd"


def main(source, unfused_source, target):
    fused, unfused = defaultdict(list), defaultdict(list)
    for row, name in rows(source):
        fused[name].append(float(row["sustained_ratio"]))
    for row, name in rows(unfused_source):
        if float(row["sustained_unfused_ms"]) > 0:
            unfused[name].append(float(row["sustained_unfused_ms"]) / float(row["sustained_cublas_ms"]))
    names = sorted(fused, key=lambda n: mean(fused[n]))
    figure, axes = plt.subplots(figsize=(9, 0.5 * len(names) + 1.5))
    for y, name in enumerate(names):
        axes.scatter(fused[name], [y] * len(fused[name]), s=14, color="tab:blue", alpha=0.4)
        axes.scatter([mean(fused[name])], [y], s=60, marker="D", color="tab:blue", label="fused" if y == 0 else None)
        if unfused[name]:
            axes.scatter([mean(unfused[name])], [y], s=60, marker="x", color="tab:red")
    axes.scatter([], [], s=60, marker="x", color="tab:red", label="cuBLAS and one separate pass")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("time / cuBLAS's plain product, sustained (dots: shapes; markers: geometric means)")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])

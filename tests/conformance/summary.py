"""The figures of a run."""
from collections import Counter


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def figures(results) -> dict:
    """Adds up the results of all entries."""
    status = Counter(r.status() for r in results)
    plans = [r.plan for r in results]
    samples = sum(len(r.samples_run) for r in results)
    fallback_samples = sum(len(r.fallback_samples) for r in results)
    cases = sum(r.cases_run for r in results)
    return {
        "entries": len(results), "testable": len(results) - status["excluded"],
        **{k: status[k] for k in
           ("pass", "excluded", "error", "wrong", "hang", "crash", "stale")},
        "combinations": sum(r.tried() for r in results),
        "uneven": sum(p.get("uneven", 0) for p in plans),
        "planned": sum(p.get("combinations", 0) for p in plans),
        "no_tensors": sum(p.get("tensors") == 0 and p.get("kind") != "excluded"
                          for p in plans),
        "at_least_64": sum(r.tried() >= 64 for r in results),
        "samples": samples, "all_samples": sum(p.get("all_samples", 0) for p in plans),
        "samples_without_fallback": samples - fallback_samples,
        "cases": cases,
        "cases_without_fallback": cases - sum(r.fallback_cases for r in results),
        "cases_without_gather": cases - sum(r.gather_cases for r in results),
        "cases_without_open_gather":
            cases - sum(r.open_gather_cases for r in results),
        "gradients": sum(len(set(r.plan.get("gradients", [])) & set(r.samples_run))
                         for r in results),
        "unrepresented": sum(r.unrepresented for r in results),
        "strides": sum(r.strides for r in results),
        "rounding": sum(r.rounding for r in results),
    }


def gathers_by_operator(results) -> dict[str, tuple[int, int]]:
    """Adds up, by operator, the combinations that gathered and the bytes; the most
    combinations first."""
    sums: dict[str, tuple[int, int]] = {}
    for result in results:
        for op, (cases, bytes_more) in result.gather_ops.items():
            known = sums.get(op, (0, 0))
            sums[op] = (known[0] + cases, known[1] + bytes_more)
    return dict(sorted(sums.items(), key=lambda item: (-item[1][0], item[0])))


def print_summary(name: str, results, seconds: float) -> None:
    f = figures(results)
    print(f"{name}: {f['pass']} of {f['testable']} testable entries pass; "
          f"{f['error']} error, {f['wrong']} wrong, {f['hang']} hang, "
          f"{f['crash']} crash, {f['stale']} stale, {f['excluded']} excluded")
    print(f"  {f['combinations']} combinations, {f['uneven']} with uneven shards; "
          f"{f['at_least_64']} entries with 64 and more; "
          f"{f['samples']} of {f['all_samples']} samples, "
          f"{f['gradients']} with gradients; {seconds:.0f} s")
    print(f"  without fallback: "
          f"{share(f['samples_without_fallback'], f['samples'])} of samples, "
          f"{share(f['cases_without_fallback'], f['cases'])} of combinations; "
          f"results with other strides than plain: {f['strides']}, "
          f"as near to float64 as plain: {f['rounding']}")
    print(f"  without gather: {share(f['cases_without_gather'], f['cases'])} of "
          f"combinations, {share(f['cases_without_open_gather'], f['cases'])} but for "
          f"the operators that are named as needing whole values")
    if f["unrepresented"]:
        print(f"  {f['unrepresented']} combinations whose inputs it cannot make: "
              f"not counted")

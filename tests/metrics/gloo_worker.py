"""One of several processes that each hold some of the items; run by test_accumulators."""

import json
from pathlib import Path

import torch
import torch.distributed as dist

from arbormax.metrics import HierarchicalDistanceAtK, LevelCalibrationError, NodeMetrics, OperatingCurve


def work(rank, world, folder, tax, true, pred, topk, logp):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    # uneven on purpose: the first process has one item, in the last one a second batch
    parts = [slice(0, 1), slice(1, 4), slice(4, None)]
    mine = parts[:1] if rank == 0 else parts[1:]
    nodes, distance = NodeMetrics(tax), HierarchicalDistanceAtK(tax, k=2)
    curve, calibration = OperatingCurve(tax), LevelCalibrationError(tax)
    for part in mine:
        nodes.update(true[part], pred[part])
        distance.update(true[part], topk[part])
        curve.update(logp[part], true[part])
        calibration.update(logp[part], true[part])
    found = {
        "nodes": nodes.compute(),
        "distance": distance.compute().item(),
        "curve": curve.compute(),
        "calibration": calibration.compute(),
        "own_count": int(nodes.count),
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()

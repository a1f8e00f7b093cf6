"""gloo's all-reduce (what PyTorch DDP uses on CPUs), two ranks as processes: python3 allreduce_gloo.py RANKS"""
import os
import sys
import time

import torch
import torch.distributed as dist


def main(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29577"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for bytes_ in (1 << 20, 16 << 20):
        data, best = torch.zeros(bytes_ // 4), float("inf")
        for i in range(12):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(data)
            took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            best = min(best, took.item()) if i > 1 else best
        if rank == 0:
            print(f"| {bytes_:10d} | gloo {best * 1e6:10.1f} us |")
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    if len(sys.argv) > 2:
        main(int(sys.argv[2]), ranks)
    else:
        for r in range(1, ranks):
            if os.fork() == 0:
                os.execv(sys.executable, [sys.executable, __file__, str(ranks), str(r)])
        main(0, ranks)
        for r in range(1, ranks):
            os.wait()

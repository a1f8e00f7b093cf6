#!/usr/bin/env bash
# What the launcher makes of GPUs, on machines with and without: the driver's answers are pretended.
. "$(dirname "$0")/../support/run.sh"
export LD_LIBRARY_PATH=$BUILD/tests/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset CUDA_VISIBLE_DEVICES
job="configs/smoke.yaml output=$scratch/run"

expect 0 "$ddprun" check
has "$scratch/out" '2 GPUs: NVIDIA Pretence, driver 580.1'
# shellcheck disable=SC2086
{
  expect 0 "$ddprun" plan $job --json
  has "$scratch/out" '"gpu": 0, "bus_id": "00000000:01:00.0", "uuid": "GPU-00000001"'
  has "$scratch/out" '"device": "cuda"'
  expect 0 env CUDA_VISIBLE_DEVICES=GPU-00000002 "$ddprun" plan $job --json
  has "$scratch/out" '"gpu": 1, "bus_id": "00000000:02:00.0"'
  expect 0 "$ddprun" plan $job parallel.device=cpu --json
  has "$scratch/out" '"gpu": null'

  expect 2 "$ddprun" $job parallel.device=cuda parallel.ranks=3
  has "$scratch/err" 'parallel.ranks: 3 ranks, but 2 GPUs may be used here'
  has "$scratch/err" 'launch.oversubscribe=true to share GPUs'
  expect 3 "$ddprun" $job parallel.device=cuda model.width=16384 model.layers=900
  has "$scratch/err" 'the GPU has 80.0 GiB'

  # Without NCCL several ranks are refused on GPUs, and compute on the CPU where the choice is left to ddprun.
  "$ddprun" plan $job parallel.device=cuda parallel.ranks=2 >"$scratch/out" 2>"$scratch/err"
  if grep -q 'parallel.ranks: 2 ranks on GPUs need NCCL, which this build lacks' "$scratch/err"; then
    expect 0 "$ddprun" $job parallel.ranks=2 train.steps=2 launch.oversubscribe=true
    has "$scratch/out" 'no GPU: several ranks on GPUs need NCCL, which this build lacks'
  fi

  expect 3 env CUDA_VISIBLE_DEVICES= "$ddprun" $job parallel.device=cuda
  has "$scratch/err" 'no GPU can be used: CUDA_VISIBLE_DEVICES="" leaves none of the 2 GPUs here'
  expect 3 env FAKE_GPUS=0 "$ddprun" $job parallel.device=cuda
  has "$scratch/err" 'the NVIDIA driver finds no GPU'
  expect 3 env FAKE_CUDA=11080 "$ddprun" $job parallel.device=cuda
  has "$scratch/err" 'the NVIDIA driver (580.1) supports CUDA 11.8, this build needs'
  expect 3 env FAKE_ERROR=9 "$ddprun" $job parallel.device=cuda
  has "$scratch/err" 'the NVIDIA driver is not loaded'
  expect 3 env FAKE_ERROR=18 "$ddprun" $job parallel.device=cuda
  has "$scratch/err" 'restart the machine'
  expect 0 env FAKE_GPUS=0 "$ddprun" $job-cpu train.steps=2
  has "$scratch/out" 'no GPU: the NVIDIA driver finds no GPU'
}
finish

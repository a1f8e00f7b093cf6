/* The dataset formats of this folder. */
#ifndef DDP_RUNTIME_DATASETS_H
#define DDP_RUNTIME_DATASETS_H

#include <ddp/dataset.h>

extern const ddp_dataset_ops ddp_dataset_idx_ops;
extern const ddp_dataset_ops ddp_dataset_npy_ops;
extern const ddp_dataset_ops ddp_dataset_text_ops;
extern const ddp_dataset_ops ddp_dataset_tokens_ops;
extern const ddp_dataset_ops ddp_dataset_synthetic_ops;

#endif

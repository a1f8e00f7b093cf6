/* ddprun's C API: everything a program of one's own needs.
 *
 * A model of one's own is one table (model.h) and this main; the executable is then its own ddprun:
 *
 *     int main(int argc, char **argv)
 *     {
 *         ddp_model_add(&my_model);
 *         return ddp_main(argc, argv);
 *     }
 */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include <ddp/comm.h>
#include <ddp/dataset.h>
#include <ddp/device.h>
#include <ddp/error.h>
#include <ddp/field.h>
#include <ddp/job.h>
#include <ddp/kernels.h>
#include <ddp/log.h>
#include <ddp/model.h>
#include <ddp/optim.h>
#include <ddp/sink.h>
#include <ddp/tensor.h>

/* Adds a model to this executable; call before ddp_main, from one thread. At most 32; a model of the same
 * name as a built-in one takes its place. `ops` must stay valid. */
void ddp_model_add(const ddp_model_ops *ops);

/* The whole of ddprun: reads the command line, runs, returns the exit code (0, 2, 3, 75, or the first failing
 * rank's own). Call once. */
int ddp_main(int argc, char **argv);

#endif

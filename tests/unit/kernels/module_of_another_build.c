/*
 * A module like libccstream_cuda.so and libccstream_mpi.so, but of another version: for
 * test_device.c and test_comm.c. Its functions are NULL, so a loader that called one before
 * checking the version would crash.
 */
#include "kernels/module_internal.h"
#include "train/comm/comm_internal.h"

__attribute__((visibility("default"))) const struct backend_module *ccstream_backend_module(void);

const struct backend_module *ccstream_backend_module(void) {
    static const struct backend_module module = {.abi = BACKEND_MODULE_ABI,
                                                 .ops_size_bytes = sizeof(struct ops),
                                                 .version = "0.0.1-other",
                                                 .requirements = "nothing"};
    return &module;
}

__attribute__((visibility("default"))) const struct comm_module *ccstream_comm_module(void);

const struct comm_module *ccstream_comm_module(void) {
    static const struct comm_module module = {.abi = COMM_MODULE_ABI,
                                              .link_size_bytes = sizeof(struct comm_link),
                                              .version = "0.0.1-other"};
    return &module;
}

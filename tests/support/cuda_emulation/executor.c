/*
 * executor: opens the library, finds the name of a kernel's host function in the symbol table of
 * the program or module that holds it, and announces operands: table.c of kernels/cuda is compiled
 * with emulation_op_check instead of op_check, device_loss.c with the emulation_launch functions.
 */
#include "tests/support/cuda_emulation/executor.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cuda/loss/loss_internal.h"
#include "kernels/operands.h"

enum { MAX_KERNELS = 4096, MAX_OPERANDS = 64, NAME_CHARS = 512 };

static unsigned operands_now;

static _Noreturn void stop(const char *what, const char *which) {
    (void)fprintf(stderr, "executor: %s: %s\n", which, what);
    abort();
}

static const struct executor *open_library(void) {
    static const struct executor_host host = {
        .wait = emulation_wait,
        .exchange = emulation_exchange,
        .thread = &threadIdx,
        .block = &blockIdx,
        .threads = &blockDim,
        .blocks = &gridDim,
    };
    const char *path = getenv("CCSTREAM_PTX");
    if (path == NULL) {
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, EXECUTOR_SYMBOL);
    executor_open_function *open_it;
    if (symbol == NULL) {
        stop(dlerror(), path);
    }
    memcpy(&open_it, &symbol, sizeof open_it);
    return open_it(&host);
}

const struct executor *executor(void) {
    static const struct executor *opened;
    static bool tried;
    if (!tried) {
        tried = true;
        opened = open_library();
    }
    return opened;
}

/* ---- names of host functions ---- */

static struct {
    const unsigned char *file; /* mapped, never unmapped */
    uintptr_t base;
} image;

static void map_image(const void *function) {
    Dl_info where;
    struct stat st;
    if (dladdr(function, &where) == 0) {
        stop("no file holds it", "a kernel");
    }
    /* A program's name is that of its command line, which PATH may have completed. */
    const char *path = strstr(where.dli_fname, ".so") != NULL ? where.dli_fname : "/proc/self/exe";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        stop("cannot be opened", path);
    }
    void *file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (file == MAP_FAILED) {
        stop("cannot be mapped", path);
    }
    image.file = file;
    image.base = (uintptr_t)where.dli_fbase;
}

static const char *symbol_of(const void *function) {
    if (image.file == NULL) {
        map_image(function);
    }
    const ElfW(Ehdr) *head = (const void *)image.file;
    const ElfW(Shdr) *sections = (const void *)(image.file + head->e_shoff);
    const uintptr_t at = (uintptr_t)function - (head->e_type == ET_DYN ? image.base : 0);
    for (int i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const ElfW(Sym) *symbols = (const void *)(image.file + sections[i].sh_offset);
        const char *names = (const char *)image.file + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
            if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC && symbols[s].st_value == at) {
                return names + symbols[s].st_name;
            }
        }
    }
    stop("its host function has no symbol; the program was stripped", "a kernel");
}

/* nvcc's name: it gives internal functions of host code, _ZL..., external names, _Z.... */
static const void *find_kernel(const void *function) {
    char name[NAME_CHARS];
    const char *symbol = symbol_of(function);
    const bool internal = strncmp(symbol, "_ZL", 3) == 0;
    (void)snprintf(name, sizeof name, "%s%s", internal ? "_Z" : "", symbol + (internal ? 3 : 0));
    name[strcspn(name, ".")] = '\0'; /* a copy that the compiler has made for itself */
    return executor()->find(name);
}

const void *executor_kernel(const void *host_function) {
    static struct { const void *function, *kernel; } known[MAX_KERNELS];
    static int count;
    if (executor() == NULL) {
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (known[i].function == host_function) {
            return known[i].kernel;
        }
    }
    if (count == MAX_KERNELS) {
        stop("too many kernels", "executor_kernel");
    }
    known[count].function = host_function;
    known[count].kernel = find_kernel(host_function);
    return known[count++].kernel;
}

void emulation_announce(const void *data, size_t size_bytes) {
    if (executor() != NULL) {
        executor()->appears(data, size_bytes);
    }
}

void emulation_forget(const void *data) {
    if (executor() != NULL) {
        executor()->disappears(data);
    }
}

/* ---- operands ---- */

unsigned executor_operands_now(void) {
    return operands_now;
}

void executor_operands_set(unsigned operands) {
    operands_now = operands;
}

static void add(struct executor_operand *all,
                int *count,
                const char *name,
                const void *data,
                size_t size_bytes,
                bool is_written) {
    if (data != NULL && *count < MAX_OPERANDS) {
        all[(*count)++] = (struct executor_operand){name, data, size_bytes, is_written};
    }
}

enum status emulation_op_check(struct device *dev,
                               enum op_id id,
                               const void *args,
                               bool indices,
                               struct error *err);

enum status emulation_op_check(struct device *dev,
                               enum op_id id,
                               const void *args,
                               bool indices,
                               struct error *err) {
    TRY(op_check(dev, id, args, indices, err));
    if (executor() == NULL) {
        return STATUS_OK;
    }
    struct executor_operand all[MAX_OPERANDS];
    int count = 0;
    const struct op_info *info = op_info(id);
    for (int32_t i = 0; i < info->operands_count; i++) {
        const struct operand *o = &info->operands[i];
        if (operand_is_tensor(o)) {
            const struct tensor *t = operand_tensor(o, args);
            add(all, &count, o->name, t->data, tensor_size_bytes(t), o->role != ROLE_IN);
        } else {
            const void *data;
            memcpy(&data, (const char *)args + o->offset, sizeof data);
            const bool values = o->type == TYPE_VALUES;
            add(all, &count, o->name, data, values ? sizeof(struct step_values) : SIZE_MAX,
                o->role != ROLE_IN);
        }
    }
    operands_now = executor()->operands(info->name, all, count);
    return STATUS_OK;
}

cudaError_t emulation_launch_loss_examine(cudaStream_t stream,
                                          const struct device_loss *l,
                                          uint32_t **window,
                                          int64_t *window_count);
cudaError_t emulation_launch_loss(cudaStream_t stream, const struct device_loss *l);

static void note_loss(const struct device_loss *l) {
    struct executor_operand all[MAX_OPERANDS];
    int count = 0;
    const size_t batch = (size_t)l->batch_count;
    const size_t rows = l->views ? 2 * batch : batch;
    const size_t matrix = rows * rows * sizeof(float);
    const size_t own = batch * batch * sizeof(float);
    const size_t world = (size_t)l->world;
    const size_t entries = ((size_t)l->id_space - (size_t)l->rank + world - 1) / world;
    add(all, &count, "similarity", l->similarity, matrix, false);
    add(all, &count, "gradient", l->gradient, matrix, true);
    add(all, &count, "image similarity", l->image_similarity, own, false);
    add(all, &count, "text similarity", l->text_similarity, own, false);
    add(all, &count, "image gradient", l->image_gradient, own, true);
    add(all, &count, "text gradient", l->text_gradient, own, true);
    add(all, &count, "sample ids", l->sample_ids, batch * sizeof(uint64_t), false);
    add(all, &count, "values", l->values, sizeof *l->values, true);
    add(all, &count, "fault", l->fault, sizeof *l->fault, true);
    add(all, &count, "scalars", l->scalars, sizeof *l->scalars, true);
    add(all, &count, "visits", l->visits, entries * sizeof(uint64_t), true);
    add(all, &count, "workspace", l->workspace, launch_loss_workspace_bytes(l), true);
    for (int side = 0; side < DEVICE_LOSS_SIDES; side++) {
        add(all, &count, "chain id", l->chain_id[side], entries * sizeof(uint64_t), true);
        for (int k = 0; k < DEVICE_LOSS_COLUMN_COUNT; k++) {
            add(all, &count, "column", l->columns[k][side], entries * sizeof(float), true);
        }
    }
    operands_now = executor()->operands("loss", all, count);
}

cudaError_t emulation_launch_loss_examine(cudaStream_t stream,
                                          const struct device_loss *l,
                                          uint32_t **window,
                                          int64_t *window_count) {
    if (executor() != NULL) {
        note_loss(l);
    }
    return launch_loss_examine(stream, l, window, window_count);
}

cudaError_t emulation_launch_loss(cudaStream_t stream, const struct device_loss *l) {
    const cudaError_t code = launch_loss(stream, l);
    operands_now = 0;
    return code;
}

/* ---- a tile of a loss ---- */

cudaError_t emulation_launch_contrast_sums(cudaStream_t stream, const struct contrast_tile *t);
cudaError_t emulation_launch_contrast_gradient(cudaStream_t stream, const struct contrast_tile *t);

static void note_tile(const struct contrast_tile *t, bool gradient) {
    struct executor_operand all[MAX_OPERANDS];
    int count = 0;
    const int64_t at[2] = {t->row, t->column};
    const struct contrast_lines *lines[2] = {t->rows, t->columns};
    add(all, &count, "s", t->s.data, tensor_size_bytes(&t->s), true);
    for (int side = 0; side < 2; side++) {
        const struct contrast_lines *x = lines[side];
        const size_t size_bytes = (size_t)t->s.shape[side] * sizeof(double);
        add(all, &count, "rate", x->rate + at[side], size_bytes, false);
        add(all, &count, "shift", x->shift + at[side], size_bytes, false);
        add(all, &count, "largest", x->largest + at[side], size_bytes, !gradient);
        if (gradient) {
            add(all, &count, "weight", x->weight + at[side], size_bytes, false);
            add(all, &count, "popularity", x->popularity + at[side], size_bytes, false);
            add(all, &count, "taken", x->taken + at[side], size_bytes, true);
        } else {
            add(all, &count, "sum", x->sum + at[side], size_bytes, true);
            add(all, &count, "weighted", x->weighted + at[side], size_bytes, true);
        }
    }
    const size_t own_bytes = (size_t)t->s.shape[0] * sizeof(double);
    add(all, &count, "positive",
        (gradient ? t->rows->positive_gradient : t->rows->positive) + t->row, own_bytes, !gradient);
    operands_now =
        executor()->operands(gradient ? "contrast_gradient" : "contrast_sums", all, count);
}

cudaError_t emulation_launch_contrast_sums(cudaStream_t stream, const struct contrast_tile *t) {
    if (executor() != NULL) {
        note_tile(t, false);
    }
    const cudaError_t code = launch_contrast_sums(stream, t);
    operands_now = 0;
    return code;
}

cudaError_t emulation_launch_contrast_gradient(cudaStream_t stream, const struct contrast_tile *t) {
    if (executor() != NULL) {
        note_tile(t, true);
    }
    const cudaError_t code = launch_contrast_gradient(stream, t);
    operands_now = 0;
    return code;
}

/*
 * matmul: out (m,n) = alpha op(a) op(b) + bias (+ out), all row-major, by cuBLASLt.
 *
 * cuBLASLt is column-major, and a row-major matrix is the transpose of the column-major one in the
 * same memory. So the call computes out^T (n,m) = op(b)^T op(a)^T: b first, and a bias along its
 * rows.
 */
#include "kernels/cuda/vector/matmul_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MATMUL_MAX_PLANS = 256 };

struct matmul_plan {
    struct product product;
    uint32_t alignment; /* bytes: every address is a multiple of this; at most ALIGNMENT_BYTES */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
};

struct matmul_plans {
    int32_t count;
    struct matmul_plan plans[MATMUL_MAX_PLANS];
};

enum status matmul_plans_create(struct matmul_plans **out, struct error *err) {
    *out = calloc(1, sizeof **out);
    return *out != NULL ? STATUS_OK
                        : error_set(err, STATUS_NOMEM, "no memory for the plans of products");
}

static void plan_destroy(struct matmul_plan *p) {
    if (p->operation != NULL) {
        (void)cublasLtMatmulDescDestroy(p->operation);
    }
    cublasLtMatrixLayout_t *const layouts[] = {&p->a, &p->b, &p->out};
    for (int i = 0; i < 3; i++) {
        if (*layouts[i] != NULL) {
            (void)cublasLtMatrixLayoutDestroy(*layouts[i]);
        }
    }
    memset(p, 0, sizeof *p);
}

void matmul_plans_destroy(struct matmul_plans *p) {
    if (p != NULL) {
        for (int32_t i = 0; i < p->count; i++) {
            plan_destroy(&p->plans[i]);
        }
        free(p);
    }
}

static cudaDataType_t blas_type(enum dtype t) {
    return t == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static enum status make_operation(struct matmul_plan *out, bool tf32, struct error *err) {
    const struct product *p = &out->product;
    const cublasComputeType_t compute =
        p->in == DTYPE_F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t first = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY_BLAS(cublasLtMatmulDescCreate(&out->operation, compute, CUDA_R_32F));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(out->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                            sizeof first));
    TRY_BLAS(cublasLtMatmulDescSetAttribute(out->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                            sizeof second));
    if (p->bias) {
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const cudaDataType_t type = blas_type(p->out);
        TRY_BLAS(cublasLtMatmulDescSetAttribute(out->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                &epilogue, sizeof epilogue));
        TRY_BLAS(cublasLtMatmulDescSetAttribute(out->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                                &type, sizeof type));
    }
    return STATUS_OK;
}

static enum status set_bias(struct matmul_plan *p, const void *bias, struct error *err) {
    if (p->product.bias) {
        TRY_BLAS(cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &bias, sizeof bias));
    }
    return STATUS_OK;
}

/* The row-major matrix (rows, columns), as cuBLASLt sees it. */
static enum status make_layout(cublasLtMatrixLayout_t *out,
                               enum dtype dtype,
                               int64_t rows,
                               int64_t columns,
                               struct error *err) {
    TRY_BLAS(cublasLtMatrixLayoutCreate(out, blas_type(dtype), (uint64_t)columns, (uint64_t)rows,
                                        columns));
    return STATUS_OK;
}

/* Allows no reduction scheme that adds in place or in an undefined order. */
static enum status choose_algorithm(struct cuda_device *dev,
                                    struct matmul_plan *out,
                                    cublasLtMatmulPreference_t preference,
                                    struct error *err) {
    const uint64_t workspace = BLAS_WORKSPACE_BYTES;
    const uint32_t schemes =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    for (int i = 0; i < 4; i++) {
        TRY_BLAS(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &out->alignment,
                                                      sizeof out->alignment));
    }
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    const cublasStatus_t code =
        cublasLtMatmulAlgoGetHeuristic(dev->blas, out->operation, out->b, out->a, out->out,
                                       out->out, preference, 1, &result, &found);
    FAIL_IF(code == CUBLAS_STATUS_NOT_SUPPORTED ||
                (code == CUBLAS_STATUS_SUCCESS &&
                 (found == 0 || result.state == CUBLAS_STATUS_NOT_SUPPORTED)),
            err, STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for (%lld,%lld) x (%lld,%lld)",
            (long long)out->product.m, (long long)out->product.k, (long long)out->product.k,
            (long long)out->product.n);
    TRY_BLAS(code);
    TRY_BLAS(result.state);
    out->algorithm = result.algo;
    return STATUS_OK;
}

/* `bias` is the address of the first one: heuristics use its alignment. */
static enum status
make_plan(struct cuda_device *dev, struct matmul_plan *out, const void *bias, struct error *err) {
    const struct product *p = &out->product;
    TRY(make_operation(out, dev->options.tf32, err));
    TRY(set_bias(out, bias, err));
    TRY(make_layout(&out->a, p->in, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k,
                    err));
    TRY(make_layout(&out->b, p->in, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n,
                    err));
    TRY(make_layout(&out->out, p->out, p->m, p->n, err));
    cublasLtMatmulPreference_t preference = NULL;
    TRY_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    const enum status s = choose_algorithm(dev, out, preference, err);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return s;
}

static bool same_product(const struct product *a, const struct product *b) {
    return a->in == b->in && a->out == b->out && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
           a->add == b->add && a->bias == b->bias;
}

static enum status find_plan(struct cuda_device *dev,
                             struct matmul_plan **out,
                             const struct product *p,
                             uint32_t alignment,
                             const void *bias,
                             struct error *err) {
    struct matmul_plans *plans = dev->matmuls;
    for (int32_t i = 0; i < plans->count; i++) {
        if (plans->plans[i].alignment == alignment && same_product(&plans->plans[i].product, p)) {
            *out = &plans->plans[i];
            return STATUS_OK;
        }
    }
    /* Packed captions have another number of rows at every step: the oldest plan is replaced. */
    if (plans->count == MATMUL_MAX_PLANS) {
        plan_destroy(&plans->plans[0]);
        memmove(plans->plans, plans->plans + 1, sizeof plans->plans - sizeof plans->plans[0]);
        plans->count--;
    }
    struct matmul_plan *plan = &plans->plans[plans->count];
    memset(plan, 0, sizeof *plan);
    plan->product = *p;
    plan->alignment = alignment;
    const enum status s = make_plan(dev, plan, bias, err);
    if (s != STATUS_OK) {
        plan_destroy(plan);
        return s;
    }
    plans->count++;
    *out = plan;
    return STATUS_OK;
}

/* A part of a tensor may have any alignment: each alignment has its own plan. */
static uint32_t common_alignment(const void *a, const void *b, const void *c) {
    const uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | ALIGNMENT_BYTES;
    return (uint32_t)(bits & (~bits + 1)); /* the lowest of them */
}

enum status matmul_run(struct cuda_device *dev,
                       const struct product *p,
                       void *out,
                       const void *a,
                       const void *b,
                       const void *bias,
                       float alpha,
                       struct error *err) {
    struct matmul_plan *plan = NULL;
    const float beta = p->add ? 1.0f : 0.0f;
    TRY(find_plan(dev, &plan, p, common_alignment(out, a, b), bias, err));
    TRY(set_bias(plan, bias, err));
    TRY_BLAS(cublasLtMatmul(dev->blas, plan->operation, &alpha, b, plan->b, a, plan->a, &beta, out,
                            plan->out, out, plan->out, &plan->algorithm, dev->blas_workspace,
                            BLAS_WORKSPACE_BYTES, dev->stream));
    cuda_counted(dev);
    return STATUS_OK;
}

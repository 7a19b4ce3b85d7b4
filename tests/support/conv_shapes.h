/*
 * conv_shapes: the convolutions that the towers run, as problems for cuDNN.
 */
#ifndef TESTS_SUPPORT_CONV_SHAPES_H
#define TESTS_SUPPORT_CONV_SHAPES_H

#include "kernels/cuda/conv/conv_plan_internal.h"
#include "kernels/operands.h"

/* h = w, c, k, kernel, stride: resnet50 at 224 px (resnet101 and 152 have the same), what resnet18
 * and resnet34 add, resnet50 at 256 and 336 px, the small towers, and stems as conv_stem.cu has
 * them. */
static const int64_t shapes[][5] = {
    {56, 64, 64, 1, 1},    {56, 64, 256, 1, 1},   {56, 256, 64, 1, 1},    {56, 256, 128, 1, 1},
    {28, 128, 512, 1, 1},  {28, 512, 128, 1, 1},  {28, 512, 256, 1, 1},   {14, 256, 1024, 1, 1},
    {14, 1024, 256, 1, 1}, {14, 1024, 512, 1, 1}, {7, 512, 2048, 1, 1},   {7, 2048, 512, 1, 1},
    {56, 256, 512, 1, 2},  {28, 512, 1024, 1, 2}, {14, 1024, 2048, 1, 2}, {56, 64, 64, 3, 1},
    {56, 128, 128, 3, 2},  {28, 128, 128, 3, 1},  {28, 256, 256, 3, 2},   {14, 256, 256, 3, 1},
    {14, 512, 512, 3, 2},  {7, 512, 512, 3, 1},   {224, 3, 64, 7, 2},     {56, 64, 128, 3, 2},
    {56, 64, 128, 1, 2},   {28, 128, 256, 3, 2},  {64, 64, 64, 3, 1},     {32, 128, 128, 3, 1},
    {84, 64, 256, 1, 1},   {21, 256, 256, 3, 1},  {11, 2048, 512, 1, 1},  {64, 3, 32, 3, 2},
    {32, 32, 64, 3, 1},    {9, 24, 40, 3, 2},     {3, 512, 512, 3, 1},    {115, 16, 64, 4, 1},
    {131, 16, 64, 4, 1},   {33, 16, 32, 2, 1}};
enum { SHAPES_COUNT = sizeof shapes / sizeof shapes[0] };

/* Of 512 images. */
static inline struct conv_problem problem(enum conv_pass pass, enum dtype dtype, const int64_t *s) {
    struct conv_problem p = {.pass = pass,
                             .dtype = dtype,
                             .n = 512,
                             .h = s[0],
                             .w = s[0],
                             .c = s[1],
                             .k = s[2],
                             .r = s[3],
                             .s = s[3],
                             .stride = (int32_t)s[4],
                             .pad = (int32_t)(s[3] / 2)};
    p.oh = conv_out_size(p.h, p.r, p.stride, p.pad);
    p.ow = p.oh;
    return p;
}

#endif

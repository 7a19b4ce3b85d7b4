/*
 * events: the lines of metrics.jsonl as an event file of TensorBoard: every number a scalar, named
 * by its path ("retrieval/mean_r1"), every histogram a histogram. Beside the lines it may have
 * images.
 *
 *   file     events.out.tfevents.SECONDS.HOST.PID.N, of TFRecords
 *   record   u64 length, u32 masked CRC32C of it, the bytes, u32 masked CRC32C of them
 *   integers little-endian
 *   bytes    the protocol buffer `Event` (tensorflow/core/util/event.proto)
 *   fields   1 wall_time double, 2 step int64, 3 file_version, 5 summary, 7 session_log
 *
 * A resumed run begins a new file with a session_log START of its step: TensorBoard drops the
 * events of earlier files from that step on, as metrics.jsonl drops its lines.
 *
 * Threading : one owner.
 * Ownership : open/close.
 */
#ifndef TRAIN_RUN_EVENTS_H
#define TRAIN_RUN_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

struct events;

/* Makes the folder and a new file in it; the next line is of a step after `step`. Returns OK, IO,
 * NOMEM or LIMIT. */
enum status
events_open(struct events **out, const char *directory, uint64_t step, struct error *err);

/* Writes the event of one line, which is whole JSON with a "step", and flushes it. Returns OK, IO,
 * NOMEM, or CORRUPT (no such line). */
enum status events_line(struct events *e, const char *line, size_t size_bytes, struct error *err);

/* A JPEG and a text (Markdown) beside it, whose tag is the image's and "/text". */
struct events_image {
    const char *tag;
    const void *jpeg;
    size_t jpeg_bytes;
    uint32_t width_px, height_px;
    const char *text;
    size_t text_bytes;
};
enum status
events_image(struct events *e, uint64_t step, const struct events_image *p, struct error *err);
void events_close(struct events *e); /* accepts NULL */

/* CRC-32C (Castagnoli, reflected 0x82F63B78), as TFRecord masks it: ((crc >> 15) | (crc << 17)) +
 * 0xa282ead8. */
uint32_t events_crc32c(const void *data, size_t size_bytes);
uint32_t events_masked_crc(const void *data, size_t size_bytes);

#endif

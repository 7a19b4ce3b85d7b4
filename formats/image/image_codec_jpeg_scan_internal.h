/*
 * image_codec_jpeg_scan: whether the coded data of a JPEG is beyond doubt, several times faster
 * than by decoding it.
 *
 * Threading : a struct jpeg_scan_tables has one owner.
 * Untrusted : all of a struct jpeg_scan but its numbers of tables and blocks.
 */
#ifndef FORMATS_IMAGE_IMAGE_CODEC_JPEG_SCAN_INTERNAL_H
#define FORMATS_IMAGE_IMAGE_CODEC_JPEG_SCAN_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JPEG_SCAN_TABLES = 4, JPEG_SCAN_MAX_BLOCKS = 10 };

/* A Huffman code as the file has it. */
struct jpeg_scan_code {
    uint8_t counts[17];   /* of codes of each length; [0] unused */
    uint8_t symbols[256]; /* in the order of their codes */
};

/* The only scan of an image: sequential, Huffman coded, of 8 bits. */
struct jpeg_scan {
    const uint8_t *data; /* after the header of the scan, up to the end of the file */
    size_t size_bytes;
    const struct jpeg_scan_code *dc[JPEG_SCAN_TABLES], *ac[JPEG_SCAN_TABLES]; /* NULL: not used */
    struct {
        uint8_t dc, ac;             /* numbers of tables that are used, below JPEG_SCAN_TABLES */
    } blocks[JPEG_SCAN_MAX_BLOCKS]; /* of a unit (MCU), in their order */
    size_t block_count;
    uint64_t unit_count;       /* of the image */
    uint32_t restart_interval; /* in units; 0: none */
};

struct jpeg_scan_tables; /* opaque; kept from one image to the next */

struct jpeg_scan_tables *jpeg_scan_tables_create(void);    /* NULL: no memory */
void jpeg_scan_tables_destroy(struct jpeg_scan_tables *t); /* accepts NULL */

/* Whether the data is exactly the blocks of the image, all codes known, restart markers in their
 * places, and the end marker at once after it. If not, it may still be what libjpeg accepts. */
bool jpeg_scan_is_sound(struct jpeg_scan_tables *t, const struct jpeg_scan *s);

#endif

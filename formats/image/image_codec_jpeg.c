/*
 * Reading JPEG with libjpeg-turbo: one decompressor per reader, used again for every image.
 *
 *   - For a region, only what it needs is decoded: jpeg_crop_scanline crops columns at iMCU
 *     borders, rows above are entropy-decoded but not transformed (jpeg_skip_scanlines), rows
 *     below are not read. Chroma upsampling reads neighbours, and libjpeg treats the crop as the
 *     image's edge, so a margin is decoded too.
 *   - Reductions are by 1/2, 1/4 and 1/8 only: the others lose libjpeg's SIMD path.
 *   - libjpeg keeps quantisation and Huffman tables from one image to the next. An image that
 *     relies on tables it does not bring must not depend on what was decoded before it, so they
 *     are set to a fixed state first: the standard Huffman tables (what libjpeg itself falls back
 *     to), and quantisation tables of zeros, which no legal image has.
 *   - A check without pixels walks the codes of ordinary images first (image_codec_jpeg_scan.c).
 *     Only what is not beyond doubt there, and other kinds, are decoded, at 1/8.
 *   - A damaged image is recognised by libjpeg's warnings about coded data; the first one ends
 *     the decode, unless a partial image will do.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "formats/image/image_codec_internal.h"
#include "formats/image/image_codec_jpeg_scan_internal.h"

enum {
    MARGIN_PX = 2,
    SKIP_MARGIN_PX = 2,
    ROWS_PER_CALL = 16,
    MIN_SCANS = 16,        /* allowed for an image of any size */
    MIN_SCAN_BYTES = 4096, /* less is decoded sooner than the tables are made */
    MAX_ODD_BYTES = 64,    /* tolerated after coded data: some cameras pad; damage leaves more */
};

/* Scans times pixels that one image may cost, beyond MIN_SCANS, and for each byte of its file:
 * bounds the time that a small file of many empty scans can take. Scans of real images have a byte
 * for every few hundred pixels. */
static const int64_t SMALL_SCAN_PIXELS = INT64_C(1) << 24;
static const int64_t SCAN_PIXELS_PER_BYTE = 4096;

struct jpeg_reader {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    bool created;
    bool accept_partial;
    bool ended_early; /* the end marker was missing */
    bool in_scans;    /* after the headers */
    int max_scans;
    struct error *err;
    enum status status;
    struct pixel_buffer cmyk;
    struct jpeg_scan_tables *scan_tables; /* NULL until a check needs them */
    JHUFF_TBL dc_tables[2], ac_tables[2]; /* the standard ones */
};

/* ------------------------------------------------------------------------- libjpeg's callbacks */

static struct jpeg_reader *reader_of(j_common_ptr cinfo) {
    return cinfo->client_data;
}

static void leave(struct jpeg_reader *r, enum status s) {
    r->status = s;
    longjmp(r->jump, 1);
}

static void leave_with_message(struct jpeg_reader *r, enum status s) {
    char text[JMSG_LENGTH_MAX];
    r->errors.format_message((j_common_ptr)&r->cinfo, text);
    leave(r, error_set(r->err, s, "jpeg: %s", text));
}

static void on_error(j_common_ptr cinfo) {
    struct jpeg_reader *r = reader_of(cinfo);
    enum status s;
    switch (r->errors.msg_code) {
    case JERR_OUT_OF_MEMORY:
        s = STATUS_NOMEM;
        break;
    case JERR_NO_BACKING_STORE:
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        s = STATUS_LIMIT;
        break;
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
#if JPEG_LIB_VERSION < 70 /* Ubuntu's libjpeg has the interface of version 8, without this one */
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_CONVERSION_NOTIMPL:
    case JERR_NOTIMPL:
        s = STATUS_UNSUPPORTED;
        break;
    default:
        s = STATUS_CORRUPT;
        break;
    }
    leave_with_message(r, s);
}

static void on_message(j_common_ptr cinfo, int level) {
    struct jpeg_reader *r = reader_of(cinfo);
    if (level >= 0) {
        return; /* trace */
    }
    r->errors.num_warnings++;
    switch (r->errors.msg_code) {
    case JWRN_JPEG_EOF:
        r->ended_early = true; /* the entropy decoder says so itself if it was short of data */
        break;
    case JWRN_EXTRANEOUS_DATA:
        if (r->in_scans && !r->accept_partial && r->errors.msg_parm.i[0] > MAX_ODD_BYTES) {
            leave_with_message(r, STATUS_CORRUPT);
        }
        break;
    case JWRN_ARITH_BAD_CODE:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
        if (!r->accept_partial) {
            leave_with_message(r, STATUS_CORRUPT);
        }
        break;
    default:
        break; /* about metadata, or bytes between markers */
    }
}

static void on_output(j_common_ptr cinfo) {
    (void)cinfo;
}

static void on_progress(j_common_ptr cinfo) {
    struct jpeg_reader *r = reader_of(cinfo);
    if (r->cinfo.input_scan_number > r->max_scans) {
        leave(r,
              error_set(r->err, STATUS_LIMIT,
                        "jpeg: more than %d scans, the limit for so few bytes and so many pixels",
                        r->max_scans));
    }
}

/* -------------------------------------------------------------------------------------- tables */

static void make_tables(struct jpeg_reader *r) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    for (int i = 0; i < NUM_QUANT_TBLS; i++) {
        c->quant_tbl_ptrs[i] = jpeg_alloc_quant_table((j_common_ptr)c);
    }
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        c->dc_huff_tbl_ptrs[i] = jpeg_alloc_huff_table((j_common_ptr)c);
        c->ac_huff_tbl_ptrs[i] = jpeg_alloc_huff_table((j_common_ptr)c);
    }
}

static void reset_tables(struct jpeg_reader *r) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    for (int i = 0; i < NUM_QUANT_TBLS; i++) {
        memset(c->quant_tbl_ptrs[i], 0, sizeof(*c->quant_tbl_ptrs[i]));
    }
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        if (i < 2) {
            *c->dc_huff_tbl_ptrs[i] = r->dc_tables[i];
            *c->ac_huff_tbl_ptrs[i] = r->ac_tables[i];
        } else {
            memset(c->dc_huff_tbl_ptrs[i], 0, sizeof(*c->dc_huff_tbl_ptrs[i]));
            memset(c->ac_huff_tbl_ptrs[i], 0, sizeof(*c->ac_huff_tbl_ptrs[i]));
        }
    }
}

/* The compressor's defaults are the standard tables. */
static void copy_standard_tables(struct jpeg_reader *r, struct jpeg_compress_struct *c) {
    if (setjmp(r->jump) != 0) {
        return;
    }
    jpeg_create_compress(c);
    c->in_color_space = JCS_RGB;
    c->input_components = 3;
    jpeg_set_defaults(c);
    for (int i = 0; i < 2; i++) {
        r->dc_tables[i] = *c->dc_huff_tbl_ptrs[i];
        r->ac_tables[i] = *c->ac_huff_tbl_ptrs[i];
    }
    r->status = STATUS_OK;
}

static void create_decompressor(struct jpeg_reader *r) {
    if (setjmp(r->jump) == 0) {
        jpeg_create_decompress(&r->cinfo);
        r->created = true;
        r->cinfo.client_data = r;
        r->cinfo.progress = &r->progress;
        make_tables(r);
        r->status = STATUS_OK;
    }
}

enum status jpeg_reader_create(struct jpeg_reader **out, struct error *err) {
    struct jpeg_reader *r = calloc(1, sizeof(*r));
    TRY_MEMORY(r, err, "no memory for a JPEG decoder");
    r->cinfo.err = jpeg_std_error(&r->errors);
    r->cinfo.client_data = r;
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = on_output;
    r->progress.progress_monitor = on_progress;
    r->err = err;
    struct jpeg_compress_struct compressor = {.err = &r->errors, .client_data = r};
    copy_standard_tables(r, &compressor);
    jpeg_destroy_compress(&compressor);
    if (r->status == STATUS_OK) {
        create_decompressor(r);
    }
    const enum status s = r->status;
    RETURN_CREATED(s, out, r, jpeg_reader_destroy);
}

void jpeg_reader_destroy(struct jpeg_reader *r) {
    if (r == NULL) {
        return;
    }
    if (r->created) {
        jpeg_destroy_decompress(&r->cinfo);
    }
    pixel_buffer_fini(&r->cmyk);
    jpeg_scan_tables_destroy(r->scan_tables);
    free(r);
}

/* -------------------------------------------------------------------------------------- decode */

static void check(struct jpeg_reader *r, enum status s) {
    if (s != STATUS_OK) {
        leave(r, s);
    }
}

/* Rows of libjpeg's output that hold [from, from + length) of the stored image, as [*a, *b). */
static void
output_span(int32_t *a, int32_t *b, int32_t from, int32_t length, unsigned by, int32_t limit) {
    *a = (int32_t)((unsigned)from / by);
    *b = (int32_t)(((unsigned)(from + length) + by - 1) / by);
    *b = *b > limit ? limit : *b;
}

static void choose_colour(struct jpeg_reader *r) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    switch (c->jpeg_color_space) {
    case JCS_CMYK:
    case JCS_YCCK:
        c->out_color_space = JCS_CMYK;
        break;
    case JCS_GRAYSCALE:
    case JCS_RGB:
    case JCS_YCbCr:
        c->out_color_space = JCS_RGB;
        break;
    default:
        leave(r, error_set(r->err, STATUS_UNSUPPORTED, "jpeg: %d components of unknown meaning",
                           c->num_components));
    }
}

/* The values are inverted, as Adobe's are, with Adobe's marker or without: Pillow reads both so. */
static void rgb_from_cmyk(uint8_t *out, const uint8_t *in, size_t width_px) {
    for (size_t x = 0; x < width_px; x++) {
        for (int i = 0; i < 3; i++) {
            out[i] = (uint8_t)((in[i] * in[3] + 127) / 255);
        }
        in += 4;
        out += 3;
    }
}

static void read_rgb_rows(struct jpeg_reader *r, const struct image_view *view, JDIMENSION end) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    JDIMENSION begin = c->output_scanline;
    while (c->output_scanline < end) {
        JSAMPROW rows[ROWS_PER_CALL];
        JDIMENSION count = end - c->output_scanline;
        count = count < ROWS_PER_CALL ? count : ROWS_PER_CALL;
        uint8_t *row = view->data + (c->output_scanline - begin) * view->stride_bytes;
        for (JDIMENSION i = 0; i < count; i++) {
            rows[i] = row + i * view->stride_bytes;
        }
        jpeg_read_scanlines(c, rows, count);
    }
}

static void read_cmyk_rows(struct jpeg_reader *r, const struct image_view *view, JDIMENSION end) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    check(r, pixel_buffer_reserve(&r->cmyk, (size_t)c->output_width * 4, r->err));
    uint8_t *row = view->data;
    while (c->output_scanline < end) {
        JSAMPROW rows[1] = {r->cmyk.data};
        jpeg_read_scanlines(c, rows, 1);
        rgb_from_cmyk(row, r->cmyk.data, c->output_width);
        row += view->stride_bytes;
    }
}

/* What libjpeg lets pass: tables that were never given, an image that lacks whole scans. */
static void check_complete(struct jpeg_reader *r) {
    const struct jpeg_decompress_struct *c = &r->cinfo;
    for (int i = 0; i < c->num_components; i++) {
        const JQUANT_TBL *q = c->comp_info[i].quant_table;
        if (q != NULL && q->quantval[0] == 0) {
            leave(r, error_set(r->err, STATUS_CORRUPT, "jpeg: quantisation table %d is missing",
                               c->comp_info[i].quant_tbl_no));
        }
        if (r->accept_partial) {
            continue;
        }
        bool missing = q == NULL;
        for (int k = 0; r->ended_early && c->coef_bits != NULL && k < DCTSIZE2; k++) {
            missing = missing || c->coef_bits[i][k] != 0;
        }
        if (missing) {
            leave(r,
                  error_set(r->err, STATUS_CORRUPT, "jpeg: scans of component %d are missing", i));
        }
    }
}

static uint64_t codec_bytes(struct jpeg_decompress_struct *c) {
    struct jpeg_component_shape shapes[MAX_COMPONENTS];
    for (int i = 0; i < c->num_components; i++) {
        shapes[i].h = (uint32_t)c->comp_info[i].h_samp_factor;
        shapes[i].v = (uint32_t)c->comp_info[i].v_samp_factor;
    }
    return jpeg_codec_bytes(c->image_width, c->image_height, shapes, (size_t)c->num_components,
                            jpeg_has_multiple_scans(c));
}

/* Sets the decompressor to the wanted part of its output; rows up to *end are to be read. */
static void seek_region(struct jpeg_reader *r, struct decode_job *job, JDIMENSION *end) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    int32_t width = (int32_t)c->image_width;
    int32_t height = (int32_t)c->image_height;
    struct image_rect raw;
    check(r, decode_job_region(job, &raw, width, height, r->err));
    unsigned by = decode_reduction(job, &raw);
    c->scale_num = 1;
    c->scale_denom = by;
    jpeg_start_decompress(c);

    int32_t x0, x1, y0, y1;
    int32_t out_width = (int32_t)c->output_width;
    output_span(&x0, &x1, raw.x, raw.width, by, out_width);
    output_span(&y0, &y1, raw.y, raw.height, by, (int32_t)c->output_height);
    x0 = x0 > MARGIN_PX ? x0 - MARGIN_PX : 0;
    x1 = x1 < out_width - MARGIN_PX ? x1 + MARGIN_PX : out_width;
    y0 = y0 > SKIP_MARGIN_PX ? y0 - SKIP_MARGIN_PX : 0;
    JDIMENSION left = (JDIMENSION)x0;
    JDIMENSION columns = (JDIMENSION)(x1 - x0);
    if (x1 - x0 < out_width) {
        jpeg_crop_scanline(c, &left, &columns);
    }
    if (y0 > 0) {
        y0 = (int32_t)jpeg_skip_scanlines(c, (JDIMENSION)y0);
    }
    check(r, decode_job_alloc(job, (int32_t)c->output_width, y1 - y0, r->err));
    job->box = (struct image_box){.x = (double)raw.x / by - (double)left,
                                  .y = (double)raw.y / by - y0,
                                  .width = (double)raw.width / by,
                                  .height = (double)raw.height / by};
    *end = (JDIMENSION)y1;
}

static void copy_code(struct jpeg_scan_code *out, const JHUFF_TBL *t) {
    memcpy(out->counts, t->bits, sizeof out->counts);
    memcpy(out->symbols, t->huffval, sizeof out->symbols);
    out->counts[0] = 0;
}

/* The codes that a component uses, and its blocks. Returns false where libjpeg must judge. */
static bool add_component(struct jpeg_reader *r,
                          struct jpeg_scan *scan,
                          struct jpeg_scan_code codes[2][JPEG_SCAN_TABLES],
                          const jpeg_component_info *comp) {
    const struct jpeg_decompress_struct *c = &r->cinfo;
    const int dc = comp->dc_tbl_no;
    const int ac = comp->ac_tbl_no;
    const int q = comp->quant_tbl_no;
    const bool interleaved = c->num_components > 1;
    const int count = interleaved ? comp->h_samp_factor * comp->v_samp_factor : 1;
    if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS || q < 0 ||
        q >= NUM_QUANT_TBLS || c->dc_huff_tbl_ptrs[dc] == NULL || c->ac_huff_tbl_ptrs[ac] == NULL ||
        c->quant_tbl_ptrs[q] == NULL || c->quant_tbl_ptrs[q]->quantval[0] == 0 ||
        c->max_h_samp_factor % comp->h_samp_factor != 0 ||
        c->max_v_samp_factor % comp->v_samp_factor != 0 ||
        scan->block_count + (size_t)count > JPEG_SCAN_MAX_BLOCKS) {
        return false;
    }
    copy_code(&codes[0][dc], c->dc_huff_tbl_ptrs[dc]);
    copy_code(&codes[1][ac], c->ac_huff_tbl_ptrs[ac]);
    scan->dc[dc] = &codes[0][dc];
    scan->ac[ac] = &codes[1][ac];
    for (int i = 0; i < count; i++, scan->block_count++) {
        scan->blocks[scan->block_count].dc = (uint8_t)dc;
        scan->blocks[scan->block_count].ac = (uint8_t)ac;
    }
    return true;
}

/* Whether the image, whose headers are read, is an ordinary one without damage. */
static bool is_sound(struct jpeg_reader *r) {
    const struct jpeg_decompress_struct *c = &r->cinfo;
    struct jpeg_scan_code codes[2][JPEG_SCAN_TABLES];
    struct jpeg_scan scan = {.data = c->src->next_input_byte,
                             .size_bytes = c->src->bytes_in_buffer,
                             .restart_interval = c->restart_interval};
    if (scan.size_bytes < MIN_SCAN_BYTES || c->progressive_mode || c->arith_code ||
        c->data_precision != 8 || c->comps_in_scan != c->num_components || c->Ss != 0 ||
        c->Se != DCTSIZE2 - 1 || c->Ah != 0 || c->Al != 0 || c->unread_marker != 0) {
        return false;
    }
    for (int i = 0; i < c->comps_in_scan; i++) {
        if (!add_component(r, &scan, codes, c->cur_comp_info[i])) {
            return false;
        }
    }
    const bool interleaved = c->num_components > 1;
    const uint32_t width_px = DCTSIZE * (interleaved ? (uint32_t)c->max_h_samp_factor : 1);
    const uint32_t height_px = DCTSIZE * (interleaved ? (uint32_t)c->max_v_samp_factor : 1);
    scan.unit_count = (uint64_t)((c->image_width + width_px - 1) / width_px) *
                      ((c->image_height + height_px - 1) / height_px);
    if (r->scan_tables == NULL) {
        r->scan_tables = jpeg_scan_tables_create();
    }
    return r->scan_tables != NULL && jpeg_scan_is_sound(r->scan_tables, &scan);
}

static void decode(struct jpeg_reader *r, struct decode_job *job) {
    struct jpeg_decompress_struct *c = &r->cinfo;
    if (setjmp(r->jump) != 0) {
        return;
    }
    reset_tables(r);
    jpeg_mem_src(c, job->data, (unsigned long)job->size_bytes);
    jpeg_read_header(c, TRUE);
    r->in_scans = true;
    check(r, image_check_size(c->image_width, c->image_height, job->limits, r->err));
    int64_t scans = (SMALL_SCAN_PIXELS + SCAN_PIXELS_PER_BYTE * (int64_t)job->size_bytes) /
                    ((int64_t)c->image_width * c->image_height);
    scans = scans < MIN_SCANS ? MIN_SCANS : scans;
    r->max_scans = scans > IMAGE_MAX_SCANS ? IMAGE_MAX_SCANS : (int)scans;
    choose_colour(r);
    /* Only useful for images that lack their last scans, where it would blur across the crop. */
    c->do_block_smoothing = FALSE;
    job->codec_bytes = codec_bytes(c);
    if (job->opt->check_only && !r->accept_partial && is_sound(r)) {
        check(r, decode_job_alloc(job, ((int32_t)c->image_width + 7) / 8, 1, r->err));
        r->status = STATUS_OK;
        return;
    }

    JDIMENSION end;
    seek_region(r, job, &end);
    if (c->out_color_space == JCS_CMYK) {
        read_cmyk_rows(r, &job->view, end);
    } else {
        read_rgb_rows(r, &job->view, end);
    }
    check_complete(r);
    if (end == c->output_height && !r->accept_partial) {
        jpeg_finish_decompress(c); /* checks what follows the coded data */
    }
    r->status = STATUS_OK;
}

enum status jpeg_reader_decode(struct jpeg_reader *r, struct decode_job *job, struct error *err) {
    size_t limit = job->limits->max_memory_bytes;
    r->err = err;
    r->accept_partial = job->opt->accept_partial;
    r->ended_early = false;
    r->in_scans = false;
    r->errors.num_warnings = 0;
    r->cinfo.mem->max_memory_to_use = limit < INT64_MAX ? (long)limit : 0;
    decode(r, job);
    /* Frees what libjpeg took for this image; the rest of the file is of no interest. */
    jpeg_abort_decompress(&r->cinfo);
    return r->status;
}

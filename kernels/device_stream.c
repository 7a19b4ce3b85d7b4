/*
 * device_stream: captures a step; if that fails, the device remains usable. See device_stream.h.
 */
#include "kernels/device_stream.h"

enum status device_capture(struct device *dev,
                           struct captured_step **out,
                           enum status (*compute)(void *cookie, struct error *err),
                           void *cookie,
                           struct error *why,
                           struct error *err) {
    const struct device_stream *stream = dev->stream;
    struct error gone = {0};
    *out = NULL;
    enum status s = stream->capture_begin(dev, why);
    if (s == STATUS_OK) {
        s = compute(cookie, why);
        if (s == STATUS_OK) {
            s = stream->capture_end(dev, out, why);
        } else {
            (void)stream->capture_end(dev, NULL, NULL);
        }
    }
    FAIL_IF(s == STATUS_DEVICE && dev->ops->sync(dev, &gone) != STATUS_OK, err, s, "%s", why->text);
    return STATUS_OK;
}

/*
 * SentencePiece as an engine of tokenizer.h: the one C++ file.
 *
 * Every entry runs inside guarded(), which turns an exception into a status, so that none crosses
 * into C. Two things are done here that the library leaves to its caller:
 *
 * - Training captions are copied first (sampled when there are too many), cleaned of NUL bytes and
 *   truncated to the length that the trainer accepts; the number of trainer threads is fixed,
 * because the order of its floating-point sums depends on it and equal captions must give equal
 * bytes.
 * - The bytes of a model may come from a stranger's checkpoint, and the library walks a model's
 *   normaliser, a double-array trie, without bounds checks, and has room for 32 matches; it
 * recurses along a piece, and has room for 64 user-defined pieces that begin alike. All of this is
 * checked here before the library sees the model (check_charsmap, check_pieces).
 */
#include "formats/tokenizer/tokenizer_internal.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "formats/base/rng.h"

namespace {

using processor = sentencepiece::SentencePieceProcessor;

constexpr size_t max_caption_bytes = 4096;
constexpr size_t max_training_bytes = size_t{1} << 30;
constexpr size_t max_piece_bytes = 512;
constexpr size_t max_nested_pieces = 32;     /* user-defined, each the beginning of the next */
constexpr uint32_t max_trie_units = 1 << 20; /* SentencePiece's own have fewer than 2^16 */
constexpr uint8_t max_matches = 32;          /* of the normaliser, along one path */
constexpr int max_trie_depth = 128;

template <typename Body> enum status guarded(struct error *err, Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return error_set(err, STATUS_NOMEM, "tokenizer: out of memory");
    } catch (const std::exception &e) {
        return error_set(err, STATUS_CORRUPT, "tokenizer: %s", e.what());
    } catch (...) {
        return error_set(err, STATUS_CORRUPT, "tokenizer: SentencePiece failed");
    }
}

/* The first `limit` bytes of `text`, without an incomplete character at the end. */
size_t truncate_at_character(const char *text, size_t size_bytes, size_t limit) {
    if (size_bytes <= limit) {
        return size_bytes;
    }
    size_t n = limit;
    for (int back = 0; back < 3 && n > 0; back++) {
        if ((static_cast<unsigned char>(text[n]) & 0xC0) != 0x80) {
            break;
        }
        n--;
    }
    return n;
}

/* ---- the model's bytes --------------------------------------------------------------------- */

/* Reads the fields of one protobuf message: just enough to find the normaliser. */
class message_reader {
  public:
    explicit message_reader(std::string_view bytes) : bytes_(bytes) {
    }

    /* The next field; false at the end or when the bytes are no message (then !ok()). */
    bool next(uint32_t *field, std::string_view *value) {
        uint64_t key = 0;
        if (bytes_.empty() || !varint(&key)) {
            return false;
        }
        *field = static_cast<uint32_t>(key >> 3);
        *value = std::string_view();
        uint64_t size = 0;
        switch (key & 7) {
        case 0:
            return varint(&number_);
        case 1:
            size = 8;
            break;
        case 2:
            if (!varint(&size)) {
                return false;
            }
            break;
        case 5:
            size = 4;
            break;
        default:
            ok_ = false;
            return false;
        }
        if (size > bytes_.size()) {
            ok_ = false;
            return false;
        }
        *value = bytes_.substr(0, static_cast<size_t>(size));
        bytes_.remove_prefix(static_cast<size_t>(size));
        return true;
    }

    bool ok() const {
        return ok_;
    }

    /* Of the last field, if it is a number. */
    uint64_t number() const {
        return number_;
    }

  private:
    bool varint(uint64_t *out) {
        uint64_t v = 0;
        for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(bytes_.front());
            bytes_.remove_prefix(1);
            v |= static_cast<uint64_t>(byte & 0x7F) << shift;
            if (!(byte & 0x80)) {
                *out = v;
                return true;
            }
        }
        ok_ = false;
        return false;
    }

    std::string_view bytes_;
    uint64_t number_ = 0;
    bool ok_ = true;
};

/*
 * A precompiled character map is
 *     u32 size of the trie | trie: units of u32 | strings, each with a NUL
 * A unit with bit 31 is a leaf and holds a place in the strings; any other leads to the unit at
 * (its own index ^ offset ^ label). A label changes the low 8 bits alone, so one test of the block
 * of 256 covers them all. A unit with bit 8 is the end of a rule, whose leaf is at (index ^
 * offset). The library begins at the root without a look at its label, and takes whatever is in the
 * place of a leaf.
 */
class trie_walk {
  public:
    trie_walk(const uint8_t *units, uint32_t count)
        : units_(count), first_(size_t{count} + 2), next_(count), below_(count, unknown),
          matches_(count, 0) {
        for (uint32_t i = 0; i < count; i++) {
            units_[i] = load_u32(units + size_t{4} * i);
            first_[size_t{base_of(i)} + 2]++;
        }
        for (size_t base = 2; base < first_.size(); base++) {
            first_[base] += first_[base - 1];
        }
        for (uint32_t i = 0; i < count; i++) {
            next_[first_[size_t{base_of(i)} + 1]++] = i;
        }
    }

    /* Whether no path from the root has a cycle, a leaf that is none, or too many matches. */
    bool sound() {
        return !(units_[0] >> 31) && visit(0, 0, false);
    }

  private:
    static constexpr uint8_t unknown = 255;
    static constexpr uint8_t entered = 254;

    static uint32_t offset(uint32_t u) {
        return (u >> 10) << ((u & (1u << 9)) >> 6);
    }

    /* The (index ^ offset) of the units that lead to unit i, if it is no leaf. */
    uint32_t base_of(uint32_t i) const {
        return i ^ (units_[i] & 0xFFu);
    }

    /* Sets the longest way and the most matches from unit i on. */
    bool visit(uint32_t i, int depth, bool labelled) {
        if (below_[i] != unknown) {
            return below_[i] != entered && depth + below_[i] <= max_trie_depth;
        }
        if (depth > max_trie_depth) {
            return false;
        }
        const uint32_t u = units_[i];
        const uint32_t base = i ^ offset(u);
        const bool ends = labelled && (u & (1u << 8));
        if (ends && !(units_[base] >> 31)) {
            return false;
        }
        uint8_t longest = 0;
        uint8_t most = 0;
        below_[i] = entered;
        for (uint32_t k = first_[base]; k < first_[size_t{base} + 1]; k++) {
            const uint32_t next = next_[k];
            if (units_[next] >> 31) {
                continue;
            }
            if (!visit(next, depth + 1, true)) {
                return false;
            }
            longest = std::max<uint8_t>(longest, static_cast<uint8_t>(below_[next] + 1));
            most = std::max(most, matches_[next]);
        }
        below_[i] = longest;
        matches_[i] = static_cast<uint8_t>(most + (ends ? 1 : 0));
        return matches_[i] <= max_matches;
    }

    std::vector<uint32_t> units_;
    std::vector<uint32_t> first_; /* by base: the index in next_ of the first unit with it */
    std::vector<uint32_t> next_;  /* units in the order of their bases */
    std::vector<uint8_t> below_;
    std::vector<uint8_t> matches_;
};

bool check_charsmap(std::string_view map) {
    if (map.empty()) {
        return true;
    }
    struct cursor c;
    cursor_init(&c, map.data(), map.size());
    const uint32_t trie_bytes = cursor_u32(&c);
    if (trie_bytes < 1024 || trie_bytes % 1024 != 0) {
        return false;
    }
    const uint8_t *trie = cursor_take(&c, trie_bytes);
    const size_t strings_bytes = cursor_left(&c);
    if (!cursor_ok(&c) || strings_bytes == 0 || map.back() != '\0') {
        return false;
    }
    const uint32_t unit_count = trie_bytes / 4;
    if (unit_count > max_trie_units) {
        return false;
    }
    for (uint32_t i = 0; i < unit_count; i++) {
        const uint32_t unit = load_u32(trie + size_t{4} * i);
        if (unit >> 31) {
            if ((unit & 0x7FFFFFFFu) >= strings_bytes) {
                return false;
            }
        } else {
            const uint32_t offset = (unit >> 10) << ((unit & (1u << 9)) >> 6);
            if (((i ^ offset) | 0xFFu) >= unit_count) {
                return false;
            }
        }
    }
    return trie_walk(trie, unit_count).sound();
}

/* A SentencePiece: 1 its text, 3 its type, of which 4 is user-defined. Fields that come twice are
 * all checked. */
bool check_piece(std::string_view piece, std::vector<std::string_view> *user_defined) {
    message_reader fields(piece);
    uint32_t field = 0;
    std::string_view value;
    std::string_view text;
    bool is_user_defined = false;
    while (fields.next(&field, &value)) {
        if (field == 1) {
            text = value;
            if (text.size() > max_piece_bytes) {
                return false;
            }
        }
        is_user_defined = is_user_defined || (field == 3 && fields.number() == 4);
    }
    if (is_user_defined) {
        user_defined->push_back(text);
    }
    return fields.ok();
}

bool nests_too_deep(std::vector<std::string_view> pieces) {
    std::vector<std::string_view> open;
    std::sort(pieces.begin(), pieces.end());
    for (const std::string_view p : pieces) {
        while (!open.empty() && p.substr(0, open.back().size()) != open.back()) {
            open.pop_back();
        }
        open.push_back(p);
        if (open.size() > max_nested_pieces) {
            return true;
        }
    }
    return false;
}

/* Walks ModelProto for pieces (field 1), and for NormalizerSpec (fields 3 and 5) and its
 * precompiled_charsmap (field 2). A message that comes twice is merged by the library, so every
 * occurrence is checked. */
bool check_model(std::string_view model) {
    message_reader top(model);
    uint32_t field = 0;
    std::string_view value;
    std::vector<std::string_view> user_defined;
    size_t piece_count = 0;
    while (top.next(&field, &value)) {
        if (field == 1 &&
            (++piece_count > TOKENIZER_MAX_VOCAB || !check_piece(value, &user_defined))) {
            return false;
        }
        if (field != 3 && field != 5) {
            continue;
        }
        message_reader spec(value);
        uint32_t spec_field = 0;
        std::string_view spec_value;
        while (spec.next(&spec_field, &spec_value)) {
            if (spec_field == 2 && !check_charsmap(spec_value)) {
                return false;
            }
        }
        if (!spec.ok()) {
            return false;
        }
    }
    return top.ok() && !nests_too_deep(std::move(user_defined));
}

enum status open_model(struct tokenizer *t, struct error *err) {
    const std::string_view model(reinterpret_cast<const char *>(t->bytes), t->size_bytes);
    FAIL_IF(
        model.empty() || !check_model(model), err, STATUS_CORRUPT,
        "tokenizer: these bytes are neither a SentencePiece model nor a vocabulary "
        "with a line [UNK]; a piece may have %zu bytes, a rule of the normaliser %d, and neither "
        "may loop or nest",
        max_piece_bytes, max_trie_depth);
    auto p = std::make_unique<processor>();
    const auto status = p->LoadFromSerializedProto(model);
    FAIL_IF(!status.ok(), err, STATUS_CORRUPT, "tokenizer: SentencePiece refuses the model: %s",
            std::string(status.message()).c_str());
    const int count = p->GetPieceSize();
    FAIL_IF(count < 1 || count > TOKENIZER_MAX_VOCAB, err, STATUS_LIMIT,
            "tokenizer: model has %d pieces, the limit is %d", count, TOKENIZER_MAX_VOCAB);
    t->vocab_count = static_cast<uint32_t>(count);
    t->cls_id = p->bos_id();
    t->sep_id = p->eos_id();
    t->pad_id = t->cls_id < 0 ? t->sep_id : p->pad_id() >= 0 ? p->pad_id() : p->unk_id();
    if (t->cls_id >= 0 && p->IdToPiece(t->cls_id) == "<bos>") {
        t->cls_id = -1; /* Gemma's, whose begin piece SigLIP 2 does not use */
    }
    FAIL_IF(t->sep_id < 0, err, STATUS_UNSUPPORTED, "tokenizer: model has no end piece");
    t->model = p.release();
    return STATUS_OK;
}

enum status open_engine(struct tokenizer *t, struct error *err) noexcept {
    return guarded(err, [&] { return open_model(t, err); });
}

void close_engine(void *model) noexcept {
    delete static_cast<processor *>(model);
}

enum status encode_engine(const struct tokenizer *t,
                          int32_t *out_ids,
                          uint32_t *out_count,
                          const char *text,
                          size_t size_bytes,
                          uint32_t max_pieces,
                          struct error *err) noexcept {
    /* One per thread, so that its room is there from the second call on. */
    static thread_local std::vector<int> pieces;
    return guarded(err, [&] {
        pieces.clear();
        const auto status = static_cast<const processor *>(t->model)->Encode(
            std::string_view(text, size_bytes), &pieces);
        FAIL_IF(!status.ok(), err, STATUS_CORRUPT, "tokenizer: cannot encode a text: %s",
                std::string(status.message()).c_str());
        const size_t count = std::min<size_t>(pieces.size(), max_pieces);
        std::copy_n(pieces.begin(), count, out_ids);
        *out_count = static_cast<uint32_t>(count);
        return STATUS_OK;
    });
}

/* ---- training ------------------------------------------------------------------------------ */

class caption_iterator : public sentencepiece::SentenceIterator {
  public:
    explicit caption_iterator(const std::vector<std::string> &captions) : captions_(captions) {
    }
    bool done() const override {
        return at_ >= captions_.size();
    }
    void Next() override {
        at_++;
    }
    const std::string &value() const override {
        return captions_[at_];
    }
    /* util::Status until SentencePiece 0.2.1, absl::Status from then on. */
    decltype(std::declval<sentencepiece::SentenceIterator>().status()) status() const override {
        return {};
    }

  private:
    const std::vector<std::string> &captions_;
    size_t at_ = 0;
};

std::string clean_caption(const char *text, size_t size_bytes) {
    std::string caption(text, truncate_at_character(text, size_bytes, max_caption_bytes));
    std::replace(caption.begin(), caption.end(), '\0', ' ');
    return caption;
}

bool is_blank(const std::string &caption) {
    return caption.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

/* Copies the captions; beyond max_captions each further one replaces a random earlier one with the
 * probability that keeps the sample even. */
enum status collect(std::vector<std::string> *captions,
                    const struct tokenizer_source *source,
                    uint32_t max_captions,
                    struct error *err) {
    struct rng rng;
    rng_init(&rng, 0, RNG_ORDER, 0, 0);
    uint64_t seen = 0;
    size_t total_bytes = 0;
    for (;;) {
        const char *text = nullptr;
        size_t size_bytes = 0;
        const enum status s = source->next(source->cookie, &text, &size_bytes, err);
        if (s == STATUS_END) {
            return STATUS_OK;
        }
        if (s != STATUS_OK) {
            return s;
        }
        std::string caption = clean_caption(size_bytes > 0 ? text : "", size_bytes);
        if (is_blank(caption)) {
            continue;
        }
        seen++;
        total_bytes += caption.size();
        if (seen <= max_captions) {
            captions->push_back(std::move(caption));
        } else {
            const uint64_t place = rng_u64(&rng) % seen;
            std::string &victim = place < max_captions ? (*captions)[place] : caption;
            total_bytes -= victim.size();
            victim = std::move(caption);
        }
        FAIL_IF(total_bytes > max_training_bytes, err, STATUS_LIMIT,
                "tokenizer: more than %zu bytes of captions; sample fewer", max_training_bytes);
    }
}

enum status training_failed(const char *message, uint32_t vocab_size, struct error *err) {
    /* The one failure that a user can act on; the message has numbers. */
    const char *versus = std::strstr(message, " vs ");
    unsigned needed = 0;
    FAIL_IF(versus && std::sscanf(versus, " vs %u", &needed) == 1 && needed > vocab_size, err,
            STATUS_LIMIT,
            "tokenizer: %u pieces are too few for the characters of these captions; "
            "at least %u are needed",
            vocab_size, needed);
    return error_set(err, STATUS_USAGE, "tokenizer: cannot train on these captions: %s", message);
}

enum status train(struct byte_buffer *out,
                  uint32_t *piece_count,
                  const struct tokenizer_source *source,
                  const struct tokenizer_train_options *opt,
                  struct error *err) {
    std::vector<std::string> captions;
    const enum status s = collect(&captions, source, opt->max_captions, err);
    if (s != STATUS_OK) {
        return s;
    }
    FAIL_IF(captions.empty(), err, STATUS_USAGE,
            "tokenizer: there are no non-empty captions to train on");
    const std::unordered_map<std::string, std::string> settings = {
        {"model_type", opt->model_type == TOKENIZER_BPE ? "bpe" : "unigram"},
        {"vocab_size", std::to_string(opt->vocab_size)},
        {"hard_vocab_limit", "false"},
        {"character_coverage", "0.9995"},
        {"normalization_rule_name", "nmt_nfkc_cf"},
        {"max_sentence_length", std::to_string(max_caption_bytes)},
        {"pad_id", std::to_string(TOKENIZER_PAD)},
        {"unk_id", std::to_string(TOKENIZER_UNK)},
        {"bos_id", std::to_string(TOKENIZER_CLS)},
        {"eos_id", std::to_string(TOKENIZER_SEP)},
        {"pad_piece", "[PAD]"},
        {"unk_piece", "[UNK]"},
        {"bos_piece", "[CLS]"},
        {"eos_piece", "[SEP]"},
        {"num_threads", "4"},
        {"minloglevel", "3"}, /* failures come back as a status; nothing goes to stderr */
    };
    caption_iterator iterator(captions);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
    if (!status.ok()) {
        return training_failed(std::string(status.message()).c_str(), opt->vocab_size, err);
    }
    FAIL_IF(model.size() > TOKENIZER_MAX_MODEL_BYTES, err, STATUS_LIMIT,
            "tokenizer: model of %zu bytes", model.size());
    struct tokenizer *t = nullptr;
    const enum status opened = tokenizer_open(&t, model.data(), model.size(), err);
    if (opened != STATUS_OK) {
        return opened;
    }
    *piece_count = tokenizer_vocab_count(t);
    tokenizer_close(t);
    return byte_buffer_append(out, model.data(), model.size(), err);
}

} // namespace

extern "C" {

const struct tokenizer_engine tokenizer_sentencepiece = {
    TOKENIZER_SENTENCEPIECE,
    open_engine,
    close_engine,
    encode_engine,
};

void tokenizer_train_options_default(struct tokenizer_train_options *opt) {
    opt->vocab_size = 8192;
    opt->max_captions = 1000000;
    opt->model_type = TOKENIZER_UNIGRAM;
}

enum status tokenizer_train(struct byte_buffer *out,
                            uint32_t *piece_count,
                            const struct tokenizer_source *source,
                            const struct tokenizer_train_options *opt,
                            struct error *err) {
    REQUIRE(out && piece_count && source && source->next && opt);
    *piece_count = 0;
    FAIL_IF(opt->vocab_size < TOKENIZER_MIN_VOCAB || opt->vocab_size > TOKENIZER_MAX_VOCAB ||
                opt->max_captions == 0,
            err, STATUS_LIMIT,
            "tokenizer: %u pieces from %u captions: pieces must be between %d and %d, "
            "captions at least 1",
            opt->vocab_size, opt->max_captions, TOKENIZER_MIN_VOCAB, TOKENIZER_MAX_VOCAB);
    return guarded(err, [&] { return train(out, piece_count, source, opt, err); });
}

} // extern "C"

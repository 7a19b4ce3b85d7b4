/*
 * The option table of ccstream-train.
 */
#include "tools/inspect/train_options.h"

#include "tools/inspect/loss_help.h"
#include "train/loss/loss_row.h"

/* Notes of --help. */
#define TRAIN_PRESETS_OF_NUCLR                                                                     \
    "Presets of NUCLR (Wang's appendix G and script). nuclr-cc3m: resnet50 at 256 px, distil "     \
    "with 30 tokens, embedding dimension 256; batch 512, 30 epochs, AdamW with learning rate "     \
    "2e-4, plateau warmup of 500 steps, cosine schedule to 1e-6, weight decay 0.02; nuclr with "   \
    "tau 0.01, gamma 0.8, initial zeta -0.05, frozen for 5 epochs, zeta learning rate 5e-6, "      \
    "image ratio 0.1. nuclr-cc12m: the same with initial zeta 0. Wang starts from pretrained "     \
    "towers: add --init-image and --init-text. cpu-demo, which tools/quickstart trains: "          \
    "resnet10t at 32 px, tiny with mean pooling, batch 64, 30 epochs, tau 0.05, unbiased "         \
    "gradient of zeta."

#define TRAIN_PRESETS_OF_FASTCLIP                                                                  \
    "Presets of FastCLIP's comparison (Wei). clip-cc3m: RN50 with CLIP's loss, learned tau from "  \
    "0.07; batch 1024, 37 epochs, AdamW with learning rate 1e-3, 10,000 warmup steps, cosine "     \
    "schedule to 0, weight decay 0.1. fastclip-cc3m: the same with loss fastclip-v3, tau "         \
    "learning rate 2e-4, rho 6.5, gamma to 0.2 in 18 epochs. fastclip-cc12m: fastclip-v3 on "      \
    "CC12M; ViT-B-32 with CLIP's tokenizer; batch 2048, 33 epochs, AdamW with learning rate "      \
    "4e-4, 10,000 warmup steps, cosine schedule to 0, weight decay 0.1, betas 0.9 and 0.98, "      \
    "epsilon 1e-6; tau from 0.07 with learning rate 1e-4, rho 8.5, gamma to 0.2 in 16 epochs. "    \
    "scent-dfn: ViT-B-32 with loss scent on 14 million pairs of DFN (Wei 2026); batch 4096, 24 "   \
    "epochs, AdamW with learning rate 5e-4, 500 warmup steps, weight decay 0.2; tau from 0.07 "    \
    "with learning rate 6.25e-5, rho 11, eps 1e-6."

#define TRAIN_PRESETS_OF_EMC2                                                                      \
    "Presets of EMC2 on two views (Yau's table 3; epochs, warmup and head as in the published "    \
    "commands): no normalisation layers, pixels in [0, 1], --emc2-off-batch view, half of the "    \
    "proposals discarded, 10 epochs of warmup (steps counted on the paper's data), then a cosine " \
    "schedule to 0. emc2-stl10: resnet18 at 96 px, embedding dimension 512, Adam with L2 decay "   \
    "1e-4, 100 epochs, batch 32, tau 1/14.28, learning rate 1e-4. emc2-stl10-b256: the same with " \
    "batch 256, tau 0.2, learning rate 1e-3. emc2-imagenet100: resnet50 at 224 px, hidden layer "  \
    "of 2048, embedding dimension 128, batch 256, tau 1/14.28, 800 epochs, LARS with learning "    \
    "rate 1.2, weight decay 1e-6. emc2-stl10-subset (figure 7): 500 images, batch 4, SGD with "    \
    "learning rate 1e-3 and no momentum, 10 epochs, all of them warmup, two fixed views of each "  \
    "image (--fixed-views); 'ccstudy gradient' measures its exact gradient. Differences from the " \
    "published code: blur has probability 0.5 instead of 1, ImageNet's colour jitter has STL's "   \
    "strength (0.8 instead of 0.4), and ImageNet's head has one hidden layer fewer. For the "      \
    "baselines add --loss simclr, negcache (with the paper's refresh), or sogclr --gamma 0.9."

static const char *const variant_choices[] = {"paper", "code", NULL};
static const char *const variant_aliases[] = {"algorithm", "reference", NULL};
/* In the order of enum live_mode. */
static const char *const progress_choices[] = {"auto", "bar", "plain", "json", "none", NULL};
static const char *const full_disk_choices[] = {"stop", "go-on", NULL};
static const char *const block_loss_choices[] =
    {[BLOCK_LOGISTIC] = "logistic", [BLOCK_HINGE] = "hinge", NULL};
static const char *const block_of_choices[] = {"images", "captions", NULL};
static const char *const task_choices[] = {"pairs", "two-views", "blocks", NULL};
static const char *const task_aliases[] = {"pair", "simclr", "curl", NULL};
/* "auto", and names of augment_kind_of. */
const char *const train_augment_names[] = {"auto", "paper", "crop", "none", "simclr", "clip", NULL};
static const char *const image_norm_choices[] = {"clip", "imagenet",  "cifar10", "cifar100",
                                                 "none", "inception", NULL};
static const char *const warmup_choices[] = {"linear", "plateau", NULL};
static const char *const on_off_choices[] = {"on", "off", NULL};
static const char *const off_on_choices[] = {"off", "on", NULL};
/* In the order of enum trainer_best. */
static const char *const best_choices[] = {"none",   "mean_r1", "mean_r5",  "mean_r10",
                                           "i2t_r1", "t2i_r1",  "zeroshot", "nn1",
                                           "nn10",   "knn",     "probe",    NULL};
static const char *const stem_choices[] = {"standard", "small", NULL};
static const char *const text_state_choices[] = {"sample", "caption", NULL};
static const char *const state_choices[] = {"auto", "device", "pinned", "host", NULL};
static const char *const engine_choices[] = {"auto", "io_uring", "pread", NULL};
static const char *const pool_choices[] = {"first", "mean", NULL};
static const char *const precision_choices[] = {"auto", "f32", "bf16", NULL};
static const char *const padding_choices[] = {"none", "longest", NULL};
static const char *const padding_aliases[] = {"packed", "padded", NULL};
/* In the order of enum comm_ranks. */
static const char *const ranks_choices[] = {"auto", "off", NULL};
/* In the order of enum comm_transport. */
static const char *const transport_choices[] = {"auto", "mpi", "gloo", NULL};
static const char *const optimizer_choices[] = {"adamw", "sgdm", "lars", "adam",
                                                NULL}; /* as optimizer_kind */

#define FIELD(name) CLI_FIELD(struct train_options, name)

static const struct cli_option rows[] = {
    {"data", 'd', CLI_LIST, FIELD(data), .metavar = "DIR[:WEIGHT]", .group = "Run",
     .help = "dataset made by ccpack, with a tokenizer (not needed for --task two-views, or with "
             "--tokenizer or --model). Several datasets are mixed in proportion to their sizes, or "
             "to their weights, and share the first one's tokenizer"},
    {"out", 'o', CLI_STRING, FIELD(out), .metavar = "RUN",
     .help = "new directory for checkpoints, metrics.jsonl and config.json"},
    {"resume", 'r', CLI_STRING, FIELD(resume), .metavar = "RUN",
     .help = "resume a run from its newest checkpoint, or from step 0 if it has none; a finished "
             "run does not change unless --epochs extends it. Options that cannot change are "
             "refused with a reason; the others are recorded for the next --resume"},
    {"remap-state", 0, CLI_LIST, FIELD(remap_state), .metavar = "DIR",
     .help = "the run's original dataset, if --data differs from that of --resume or --init-state "
             "(one per source of a mix, same order); per-sample state is matched by image hash, "
             "and the interrupted epoch restarts"},
    {"preset", 0, CLI_ENUM, FIELD(preset), .default_text = "none", .choices = train_preset_names,
     .metavar = "NAME",
     .help = "named set of defaults, described below; other options override it"},
    {"config", 0, CLI_STRING, FIELD(config), .metavar = "FILE",
     .help = "options from a file with the layout of RUN/config.json; command-line options "
             "override it; it overrides --preset"},
    {"val", 'v', CLI_STRING, FIELD(trainer.val), .metavar = "DIR",
     .help = "dataset with captions for evaluating retrieval between epochs and at the end"},
    {"zeroshot", 0, CLI_STRING, FIELD(trainer.zeroshot), .metavar = "DIR",
     .help = "dataset with labels for evaluating zero-shot classification between epochs and at "
             "the end, with the defaults of ccstream-eval zeroshot"},
    {"knn", 0, CLI_STRING, FIELD(trainer.knn), .metavar = "TRAIN:TEST",
     .help = "two datasets with labels: classify TEST by its nearest neighbours in TRAIN between "
             "epochs and at the end (nn1, nn10, knn), with the defaults of ccstream-eval knn; with "
             "--block-of captions, classify captions"},
    {"probe", 0, CLI_FLAG, FIELD(trainer.probe),
     .help = "with --knn: also classify by logistic regression on the same features, with the "
             "defaults of ccstream-eval linear"},
    {"keep-best", 0, CLI_ENUM, FIELD(trainer.keep_best), .default_text = "none",
     .choices = best_choices, .metavar = "METRIC",
     .help = "metric of --val, --zeroshot (zeroshot: top-1) or --knn; the checkpoint with its best "
             "value so far is kept as RUN/best"},
    {"patience", 0, CLI_U64, FIELD(trainer.patience), .min = "0", .max = "1000000",
     .default_text = "0", .metavar = "N",
     .help = "stop after N consecutive evaluations without improvement of --keep-best; 0: never"},
    {"eval-every", 0, CLI_U64, FIELD(trainer.eval_epochs), .min = "0", .max = "1000000",
     .default_text = "1", .metavar = "N",
     .help = "evaluate on --val, --zeroshot and --knn every N epochs, and at the end of the run; "
             "0: only "
             "at the end. --resume first runs an evaluation that was missed"},
    {"checkpoint-every", 0, CLI_U64, FIELD(trainer.checkpoint_steps), .min = "0",
     .max = "1000000000", .default_text = "0", .metavar = "N",
     .help = "also save a checkpoint every N steps; 0: only after each epoch, at the end and when "
             "stopped"},
    {"checkpoint-seconds", 0, CLI_U64, FIELD(trainer.checkpoint_seconds), .min = "0",
     .max = "1000000000", .default_text = "0", .metavar = "N",
     .help = "also save a checkpoint N seconds after the previous one; 0: never"},
    {"on-full-disk", 0, CLI_ENUM, FIELD(trainer.go_on_unsaved), .default_text = "stop",
     .choices = full_disk_choices, .metavar = "WHAT",
     .help =
         "action when a checkpoint cannot be written. stop: end the run; go-on: warn, and continue "
         "to the next checkpoint. Earlier checkpoints are kept; the final one must succeed"},
    {"keep-checkpoints", 0, CLI_U64, .alias = "keep", FIELD(trainer.keep_count), .min = "1",
     .max = "1000", .default_text = "2", .metavar = "N",
     .help = "number of most recent checkpoints kept in RUN/checkpoints"},
    {"steps", 0, CLI_U64, FIELD(trainer.max_steps), .min = "0", .max = "1000000000000",
     .default_text = "0", .metavar = "N",
     .help = "stop early, after step N; schedules still span --epochs; 0: off"},
    {"dry-run", 0, CLI_FLAG, FIELD(dry_run), .help = "print the memory plan and exit"},
    {"json", 0, CLI_FLAG, FIELD(json), .help = "print a JSON summary to stdout at the end"},
    {"report", 0, CLI_FLAG, FIELD(report),
     .help = "write RUN/report.html at every checkpoint and evaluation, not only at the end"},
    {"probe-pairs", 0, CLI_U64, FIELD(probe_pairs), .min = "0", .max = "20000", .default_text = "0",
     .metavar = "N",
     .help = "nuclr: whenever RUN/report.html is written, encode N training pairs with each kept "
             "checkpoint and compare zeta with the minimiser of NUCLR's eq. (8) over them "
             "(RUN/probe.jsonl); 0: off"},
    {"progress", 0, CLI_ENUM, FIELD(progress), .default_text = "auto", .choices = progress_choices,
     .metavar = "KIND",
     .help = "progress on stderr. bar: one line, redrawn; plain: one line every ten seconds; json: "
             "one object per second, and of the messages only warnings; none: no progress; auto: "
             "bar on a terminal, else plain"},
    {"quiet", 'q', CLI_FLAG, FIELD(quiet), .help = "no progress; only warnings and errors"},

    {"task", 0, CLI_ENUM, .aliases = task_aliases, FIELD(trainer.task), .default_text = "pairs",
     .choices = task_choices, .metavar = "NAME", .group = "Model",
     .help = "what is trained. pairs: image-caption pairs, two towers; two-views: two augmented "
             "views of each image, one image tower with a projection head, no captions; for --loss "
             "simclr, dcl, hcl, rince, sogclr, isogclr, emc2, negcache; blocks (CURL, Arora 2019): "
             "an anchor against blocks of images or captions (--block-of), each of one class, with "
             "--block-loss on unnormalised embeddings instead of --loss; requires a dataset with "
             "labels, one rank and --device cpu"},
    {"block-of", 0, CLI_ENUM, FIELD(trainer.blocks.captions), .default_text = "images",
     .choices = block_of_choices, .metavar = "KIND",
     .help = "--task blocks: content of the blocks. captions: trains only the text tower and its "
             "projection, on one caption per sample, redrawn every epoch; images are not decoded"},
    {"block-loss", 0, CLI_ENUM, FIELD(trainer.blocks.kind), .default_text = "logistic",
     .choices = block_loss_choices, .metavar = "NAME",
     .help = "--task blocks: loss over the negative blocks. logistic: log2(1 + sum e^-v); hinge: "
             "max(0, 1 + max(-v)); v: mean inner product of the anchor with its own block minus "
             "that with the negative block"},
    {"block-size", 0, CLI_U64, FIELD(trainer.blocks.size), .min = "1", .max = "64",
     .default_text = "2", .metavar = "N",
     .help = "--task blocks: positives per anchor (Arora: 2, 5, 10). --batch-size must be even and "
             "a multiple of N + 1; each class needs at least N + 1 samples"},
    {"block-negatives", 0, CLI_U64, FIELD(trainer.blocks.negatives), .min = "1", .max = "16383",
     .default_text = "4", .metavar = "N",
     .help = "--task blocks: negative blocks per anchor, from the same batch; they may be of the "
             "anchor's class (Arora: 4 on CIFAR-100)"},
    {"block-pairs", 0, CLI_FLAG, FIELD(trainer.blocks.pairs),
     .help = "--task blocks: average the losses of the single positives (QT) instead of using the "
             "loss of their mean"},
    {"model", 0, CLI_STRING, FIELD(trainer.model), .metavar = "MODEL",
     .help =
         "open_clip model instead of --image-tower and --text-tower: ViT-S-32, ViT-S-16, "
         "ViT-B-32, ViT-B-32-256, ViT-B-16, ViT-L-14 or RN50, each also with -quickgelu, "
         "ViT-B-16-SigLIP, ViT-B-16-SigLIP2, or a JSON file in open_clip's format. Sets "
         "--image-size, --max-tokens, --embed-dim and --tokenizer clip (another tokenizer "
         "changes the vocabulary size), --image-norm and --resize-mode from the file's "
         "preprocess_cfg, and unless given --dropout 0 and --no-clean. With --task two-views "
         "and blocks of images, only the model's image tower and image size are used. open_clip's "
         "own temperature is --loss clip --tau 0.07 --temperature global"},
    {"image-tower", 0, CLI_STRING, FIELD(trainer.image_tower), .default_text = "resnet50",
     .metavar = "NAME",
     .help = "image tower: resnet10t, resnet18, resnet34 or resnet50 (timm's names), or tiny"},
    {"text-tower", 0, CLI_STRING, FIELD(trainer.text_tower), .default_text = "distil",
     .metavar = "NAME",

     .help = "text tower: tiny (2 layers of width 192), small (4 of 384) or distil (6 of 768, "
             "DistilBERT)"},
    {"tokenizer", 0, CLI_STRING, FIELD(trainer.tokenizer), .metavar = "FILE",
     .help = "tokenizer to use instead of the dataset's: clip, a SentencePiece model, BERT's "
             "vocab.txt, a tokenizer.json with byte-level BPE, or CLIP's merges.txt; saved in the "
             "checkpoint"},
    {"init", 0, CLI_STRING, FIELD(trainer.init), .metavar = "RUN",
     .help =
         "initialise the whole model from a run, a checkpoint, or a folder with an open_clip model "
         "or Hugging Face's CLIPModel or SiglipModel: towers, projections, tokenizer, and "
         "temperature unless --tau is given. Model options and --augment are taken from it"},
    {"init-state", 0, CLI_FLAG, FIELD(trainer.init_state),
     .help = "with --init: also load its per-sample state; requires the same loss, and the same "
             "data or --remap-state"},
    {"recover-state", 0, CLI_U64, FIELD(trainer.loss.recover_epochs), .max = "10000",
     .default_text = "0", .metavar = "EPOCHS",
     .help = "with --init: for the first EPOCHS of --epochs freeze weights and temperature, and "
             "only rebuild the optimiser's moments and the per-sample state, which the checkpoint "
             "lacks (TuneCLIP: 5)"},
    {"init-image", 0, CLI_STRING, FIELD(trainer.init_image), .metavar = "FILE",
     .help = "initialise only the image tower: safetensors with timm's names, or a run (timm "
             "weights expect --image-norm imagenet; NUCLR's code uses clip)"},
    {"init-text", 0, CLI_STRING, FIELD(trainer.init_text), .metavar = "FILE",
     .help = "initialise only the text tower: safetensors with the names of Hugging Face's "
             "DistilBERT, or a run"},
    {"image-size", 0, CLI_U64, FIELD(trainer.image_size_px), .min = "8", .max = "1024",
     .default_text = "256", .metavar = "PX", .help = "input resolution"},
    {"stem", 0, CLI_ENUM, FIELD(trainer.small_stem), .default_text = "standard",
     .choices = stem_choices, .metavar = "KIND",
     .help = "stem of a ResNet; small: stride 1 and no pooling, for images of 32 to 96 px"},
    {"norm-layer", 0, CLI_ENUM, .alias = "norm", FIELD(trainer.norm_layers),
     .default_text = "batch", .choices = RESNET_NORM_NAMES, .metavar = "KIND",
     .help = "normalisation layers of the image tower (with --task two-views also of the head): "
             "batch, group (32 groups; 8 for 24 channels), or none, so that images do not interact "
             "before the loss (EMC2); group and none: CPU only"},
    {"max-tokens", 0, CLI_U64, FIELD(trainer.max_tokens), .min = "2", .max = "512",
     .default_text = "30", .metavar = "N",
     .help = "maximum tokens per caption, including start and end tokens"},
    {"embed-dim", 0, CLI_U64, FIELD(trainer.embed_dim), .min = "1", .max = "8192",
     .default_text = "256", .metavar = "N", .help = "dimension of the shared embedding space"},
    {"projection-bias", 0, CLI_ENUM, FIELD(trainer.no_projection_bias), .default_text = "on",
     .choices = on_off_choices, .metavar = "ON",
     .help = "off: projection biases start at 0 (with --init: as loaded) and are frozen; required "
             "to export a VisionTextDualEncoderModel"},
    {"hidden-dim", 0, CLI_U64, FIELD(trainer.hidden_dim), .min = "1", .max = "65536",
     .default_text = "512", .metavar = "N",
     .help = "--task two-views: hidden layer of the projection head (linear, batch norm, ReLU, "
             "linear)"},
    {"dropout", 0, CLI_DOUBLE, FIELD(trainer.dropout), .min = "0", .max = "0.9",
     .default_text = "0.1", .metavar = "P", .help = "dropout of the text tower"},
    {"patch-dropout", 0, CLI_DOUBLE, FIELD(trainer.patch_dropout), .min = "0", .max = "0.999",
     .word = "auto", .word_value = "-1", .default_text = "auto", .metavar = "P",
     .help =
         "fraction of each image's patches dropped at random in each step, which makes the step "
         "faster; only for --model with one of CLIP's vision transformers; auto: the model's own"},
    {"text-pool", 0, CLI_ENUM, FIELD(trainer.text_pool), .default_text = "first",
     .choices = pool_choices, .metavar = "KIND",
     .help = "text pooling: first token, or mean over tokens"},
    {"caption-columns", 0, CLI_STRING, FIELD(trainer.caption_columns),
     .metavar = "NAME[:WEIGHT],...",
     .help = "draw captions from columns added by 'ccpack attach', at random by weight among those "
             "that a sample has; raw: the sample's own captions; for example raw:0.3,long:0.7. "
             "raw+long: one of each in every step, with --positives 2 (nuclr, dcl)"},
    {"weight", 0, CLI_STRING, FIELD(trainer.weight), .metavar = "COLUMN",
     .help = "sample weights, an attached column of one number >= 0 per sample; each anchor's loss "
             "is multiplied by its sample's weight, which should average 1, as the learning rate "
             "is not adapted"},
    {"reference", 0, CLI_STRING, FIELD(trainer.reference), .metavar = "COLUMN",
     .help = "DRRho-CLIP: features of a reference model, an attached column of two vectors per "
             "sample (image, text); losses with a moving average u then use similarities minus the "
             "reference model's"},
    {"teacher-image", 0, CLI_STRING, FIELD(trainer.teacher_image), .metavar = "COLUMN",
     .help = "distil from a teacher's image features, an attached column of one vector per sample, "
             "or of two (image, text); requires --teacher-text"},
    {"teacher-text", 0, CLI_STRING, FIELD(trainer.teacher_text), .metavar = "COLUMN",
     .help = "the teacher's text features, likewise; may be the same column of two vectors"},
    {"distill-weight", 0, CLI_DOUBLE, FIELD(trainer.distill_weight), .min = "0", .max = "1",
     .default_text = "0.5", .metavar = "W",
     .help = "with a teacher: the loss is (1 - W) loss + W KL, the mean over both directions of "
             "the KL divergence of the batch's softmax from the teacher's (MobileCLIP)"},
    {"distill-tau", 0, CLI_DOUBLE, FIELD(trainer.distill_tau), .min = "0", .max = "10",
     .default_text = "0", .metavar = "TAU",
     .help = "with a teacher: temperature of the model's softmax; 0: the loss's"},
    {"teacher-tau", 0, CLI_DOUBLE, FIELD(trainer.teacher_tau), .min = "0.0001", .max = "10",
     .default_text = "0.01", .metavar = "TAU",
     .help = "with a teacher: temperature of the teacher's softmax"},
    {"pair-noise", 0, CLI_DOUBLE, FIELD(trainer.pair_noise), .min = "0", .max = "1",
     .default_text = "0", .metavar = "R",
     .help = "probability of a noisy pair, as in RINCE: a sample gets the captions of another "
             "sample of its dataset, the same in all epochs (chosen by --seed and sample id); "
             "evaluation is not affected"},
    {"no-clean", 0, CLI_NO, FIELD(trainer.clean_captions),
     .help = "tokenize captions as stored, without the paper's cleaning"},
    {"augment", 'a', CLI_ENUM, FIELD(augment), .default_text = "auto",
     .choices = train_augment_names, .metavar = "NAME",
     .help =
         "training augmentation. paper: random resized crop, horizontal flip, RandAugment; crop: "
         "paper without RandAugment; none: resize only; simclr: crop, flip, colour jitter, "
         "grayscale, blur; clip: open_clip's, a crop of 0.9 to 1 of the area, no flip; auto: "
         "simclr with --task two-views, crop with --task blocks, clip with --model, else paper"},
    {"crop-scale", 0, CLI_STRING, FIELD(crop_scale), .default_text = "auto", .metavar = "MIN:MAX",
     .help = "range of the fraction of an image's area that a random crop covers, such as 0.9:1; "
             "auto: by --augment (paper and crop 0.5:1, simclr 0.08:1, clip 0.9:1)"},
    {"fixed-views", 0, CLI_ENUM, FIELD(trainer.fixed_views), .default_text = "off",
     .choices = off_on_choices, .metavar = "ON",
     .help = "on: the augmentation depends only on --seed and sample id, so each epoch has the "
             "same view of an image (--task two-views: the same two views; EMC2's figure 7)"},
    {"resize-mode", 0, CLI_ENUM, FIELD(trainer.resize), .default_text = "auto",
     .choices = OPEN_CLIP_RESIZE_NAMES, .metavar = "MODE",
     .help = "how images become square in evaluation, as in open_clip. shortest: resize the "
             "shorter side and crop the centre; longest: resize the longer side and pad with "
             "black; squash: resize without keeping the aspect ratio; auto: shortest with --model, "
             "squash for SigLIP; for other models see ccstream-eval --transform own"},
    {"image-norm", 0, CLI_ENUM, .alias = "normalize", FIELD(trainer.image_norm),
     .default_text = "clip", .choices = image_norm_choices, .metavar = "NAME",
     .help = "channel mean and std for normalising images; none: pixels stay in [0, 1], as in "
             "EMC2; recorded in the checkpoint"},

    {"batch-size", 'b', CLI_U64, .alias = "batch", FIELD(trainer.batch_count), .min = "2",
     .max = "1048576", .default_text = "512", .metavar = "N", .group = "Optimiser",
     .help = "global batch size over all ranks; a multiple of the rank count. The samples that do "
             "not fill a last batch, different ones in each epoch, are skipped"},
    {"micro-batch", 0, CLI_U64, FIELD(trainer.micro_batch_count), .min = "0", .max = "1048576",
     .default_text = "0", .metavar = "N",
     .help = "pairs (with --task two-views: images, both views of each) per forward pass of the "
             "towers, to save memory. Gradient caching computes the same full-batch loss with one "
             "more forward pass. Batch norm sees N pairs at a time; on a CPU up to log2(batch / N) "
             "more copies of the gradients are kept; 0: the whole batch"},
    {"loss-tile", 0, CLI_U64, FIELD(trainer.loss_tile), .min = "0", .max = "32768",
     .default_text = "0", .metavar = "N",
     .help = "compute similarities in tiles of N x N, so that memory grows with the batch instead "
             "of its square, with four matrix products instead of three; 0: tiles of 2048 for "
             "batches above 1024, on a GPU above 32768, else the whole matrix. Results agree up to "
             "rounding"},
    {"grad-checkpoint", 0, CLI_FLAG, FIELD(trainer.grad_checkpoint),
     .help =
         "activation checkpointing: store only the inputs of transformer blocks and recompute "
         "their activations in the backward pass. Less memory (see --dry-run) for one more forward "
         "pass of the blocks; results are bit-identical. ResNets store all activations"},
    {"sync-bn", 0, CLI_FLAG, FIELD(trainer.sync_bn),
     .help = "batch-norm statistics over the micro-batches that all ranks process at the same time "
             "(--micro-batch 0: the global batch); one more exchange per batch norm, forward and "
             "backward. No effect with one rank; not on cuda"},
    {"epochs", 'e', CLI_U64, FIELD(trainer.epochs), .min = "1", .max = "1000000",
     .default_text = "30", .metavar = "N", .help = "passes over the data"},
    {"optimizer", 0, CLI_ENUM, FIELD(trainer.optimizer.kind), .default_text = "adamw",
     .choices = optimizer_choices, .metavar = "NAME",
     .help = "adamw; sgdm: SGD with momentum and L2 decay; lars: sgdm with layer-wise trust "
             "ratios, for large batches (EMC2 on ImageNet-100: --lr 1.2 --weight-decay 1e-6); "
             "adam: Adam with L2 decay, as in PyTorch; lars and adam: CPU only"},
    {"momentum", 0, CLI_DOUBLE, FIELD(trainer.optimizer.momentum), .min = "0", .max = "0.9999999",
     .default_text = "0.9", .metavar = "X", .help = "momentum of sgdm and lars"},
    {"trust-coeff", 0, CLI_DOUBLE, .alias = "trust", FIELD(trainer.optimizer.trust),
     .min = "0.000000001", .max = "1000", .default_text = "0.001", .metavar = "X",
     .help = "LARS trust coefficient; biases and normalisation parameters use plain sgdm"},
    {"lr", 0, CLI_DOUBLE, FIELD(trainer.lr), .min = "0", .max = "100", .default_text = "0.0002",
     .metavar = "X", .help = "peak learning rate (Wang: 2e-4)"},
    {"min-lr", 0, CLI_DOUBLE, FIELD(trainer.min_lr), .min = "0", .max = "100",
     .default_text = "0.000001", .metavar = "X",
     .help = "final learning rate of the cosine schedule (Wang: 1e-6)"},
    {"warmup", 0, CLI_ENUM, FIELD(trainer.warmup_plateau), .default_text = "linear",
     .choices = warmup_choices, .metavar = "KIND",
     .help = "shape of the warmup; plateau: five constant steps starting at lr / 20, as in NUCLR's "
             "code"},
    {"warmup-steps", 0, CLI_U64, FIELD(trainer.warmup_steps), .word = "auto",
     .word_value = "18446744073709551615", .default_text = "auto", .metavar = "N",

     .help = "warmup steps; auto: 500 or 10 % of the run, whichever is smaller"},
    {"ema", 0, CLI_DOUBLE, FIELD(trainer.ema), .min = "0", .max = "0.9999999", .default_text = "0",
     .metavar = "DECAY",
     .help = "also keep an exponential moving average of the weights (EMA), which ccstream-eval "
             "--ema and ccstream-export --ema use; 0: none"},
    {"image-lr", 0, CLI_DOUBLE, FIELD(trainer.tuning.image_lr), .min = "0.000000000001",
     .max = "100", .word = "auto", .word_value = "-1", .default_text = "auto", .metavar = "X",
     .help = "peak learning rate of the image tower and its projection, on the schedule of --lr; "
             "adamw and adam; auto: --lr"},
    {"text-lr", 0, CLI_DOUBLE, FIELD(trainer.tuning.text_lr), .min = "0.000000000001", .max = "100",
     .word = "auto", .word_value = "-1", .default_text = "auto", .metavar = "X",
     .help = "peak learning rate of the text tower and its projection, as --image-lr"},
    {"layer-decay", 0, CLI_DOUBLE, FIELD(trainer.tuning.layer_decay), .min = "0.01", .max = "1",
     .default_text = "1", .metavar = "F",
     .help = "learning rate of each group of a tower's layers (groups as in --lock-image) relative "
             "to the next group's; adamw and adam; 1: equal rates"},
    {"lock-image", 0, CLI_U64, FIELD(trainer.tuning.lock_image), .min = "0", .max = "1000",
     .word = "off", .word_value = "18446744073709551615", .default_text = "off",
     .metavar = "GROUPS",
     .help = "freeze the image tower except its last GROUPS groups of layers, as in open_clip; "
             "from the end, the groups are: projection; last block and final norm; each earlier "
             "block; the layers before the blocks. 0: freeze all; resnet: 0 or 1. Frozen layers "
             "have no optimiser state; a tower without a trained block runs in evaluation mode, "
             "with fixed batch-norm statistics"},
    {"lock-text", 0, CLI_U64, FIELD(trainer.tuning.lock_text), .min = "0", .max = "1000",
     .word = "off", .word_value = "18446744073709551615", .default_text = "off",
     .metavar = "GROUPS",
     .help = "freeze the text tower except its last GROUPS groups of layers, as --lock-image"},
    {"weight-decay", 0, CLI_DOUBLE, FIELD(trainer.optimizer.weight_decay), .min = "0", .max = "100",
     .default_text = "0.02", .metavar = "X",
     .help = "weight decay: decoupled in adamw, L2 in the others; not applied to biases and other "
             "1-D tensors (Wang: 0.02)"},
    {"beta1", 0, CLI_DOUBLE, FIELD(trainer.optimizer.beta1), .min = "0", .max = "0.9999999",
     .default_text = "0.9", .metavar = "X", .help = "first-moment decay of adamw and adam"},
    {"beta2", 0, CLI_DOUBLE, FIELD(trainer.optimizer.beta2), .min = "0", .max = "0.9999999",
     .default_text = "0.999", .metavar = "X", .help = "second-moment decay of adamw and adam"},
    {"adam-eps", 0, CLI_DOUBLE, FIELD(trainer.optimizer.eps), .min = "0", .max = "1",
     .default_text = "0.00000001", .metavar = "X", .help = "epsilon of adamw and adam"},
    {"clip-norm", 0, CLI_DOUBLE, FIELD(trainer.optimizer.clip_norm), .min = "0", .max = "1000000",
     .default_text = "0", .metavar = "X", .help = "clip the global gradient norm to X; 0: off"},
    {"seed", 's', CLI_U64, FIELD(trainer.seed), .min = "0", .max = "9223372036854775807",
     .default_text = "0", .metavar = "N",
     .help = "random seed: initialisation, sample order, augmentation, dropout"},
    {"order", 0, CLI_STRING, FIELD(order), .default_text = "global", .metavar = "ORDER",

     .help =
         "sample order: global (full shuffle), sequential, or block:SIZE[:WINDOW] (blocks of SIZE "
         "samples, shuffled within WINDOW blocks, default 16), for remote data and slow disks"},

    {"ranks", 0, CLI_ENUM, FIELD(ranks), .default_text = "auto", .choices = ranks_choices,
     .metavar = "HOW", .group = "Machine",
     .help = "number of ranks. auto: as many as mpirun, srun or torchrun started; off: one, and "
             "refuse to start if a launcher started several"},
    {"transport", 0, CLI_ENUM, FIELD(transport), .default_text = "auto",
     .choices = transport_choices, .metavar = "HOW",
     .help = "communication between ranks. auto: MPI under mpirun and srun --mpi; Gloo under "
             "torchrun, under srun without MPI, and with RANK, WORLD_SIZE and MASTER_ADDR"},
    {"rank-timeout", 0, CLI_U64, FIELD(rank_timeout_seconds), .min = "1", .max = "86400",
     .default_text = "60", .metavar = "SECONDS",
     .help = "stop, and name the rank, after this many seconds without its heartbeat or of waiting "
             "for it (10x while it saves or evaluates and its disk responds)"},
    {"device", 0, CLI_STRING, FIELD(trainer.device), .default_text = "cpu", .metavar = "NAME",

     .help = "cpu (oneDNN); cuda or cuda:N; auto: cuda if it works, else cpu, and the reason is "
             "logged; cpu-ref (plain loops, for checking only)"},
    {"state-memory", 0, CLI_ENUM, .alias = "state", FIELD(trainer.state), .default_text = "auto",
     .choices = state_choices, .metavar = "PLACE",
     .help = "where per-sample state is stored. device: GPU memory; pinned: page-locked host "
             "memory (only the batch's entries are copied); host: host memory, and the loss runs "
             "on the host, as it always does with --variant code or without a GPU; auto: device if "
             "it fits in 10 % of free memory, else pinned. Results agree up to rounding"},
    {"list-devices", 0, CLI_FLAG, FIELD(list_devices),
     .help = "list devices, or what each one lacks, and exit"},
    {"cuda-graph", 0, CLI_ENUM, FIELD(trainer.cuda_graph), .default_text = "on",
     .choices = off_on_choices, .metavar = "ON",
     .help = "cuda: capture each step shape once as a CUDA graph and replay it, if the loss runs "
             "on the GPU; off: launch op by op. Bit-identical either way"},
    {"nondeterministic", 0, CLI_NO, .alias = "any-kernels",
     FIELD(trainer.device_options.deterministic),
     .help = "cuda: also allow nondeterministic cuDNN kernels"},
    {"tf32", 0, CLI_FLAG, FIELD(trainer.device_options.tf32),
     .help = "cuda: use TF32 tensor cores for f32 products"},
    {"autotune", 0, CLI_FLAG, FIELD(trainer.device_options.autotune),
     .help = "cuda: time the kernels of each convolution once and use the fastest; the choice may "
             "differ between runs unless --plan-cache records it"},
    {"plan-cache", 0, CLI_STRING, FIELD(trainer.device_options.plan_cache), .metavar = "DIR",
     .help = "cuda: folder in which the kernels chosen for each shape are recorded"},
    {"threads", 't', CLI_U64, FIELD(trainer.threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N",
     .help = "compute threads per rank; 0: all CPUs, divided by the ranks on this host"},
    {"precision", 0, CLI_ENUM, FIELD(precision), .default_text = "auto",
     .choices = precision_choices, .metavar = "TYPE",
     .help = "bf16: bfloat16 activations and working weights; f32 master weights, gradients, "
             "optimiser state and loss; an error if the device lacks it; auto: bf16 on a GPU, "
             "where full f32 is several times slower, else f32"},
    {"padding", 0, CLI_ENUM, .alias = "captions", .aliases = padding_aliases,
     FIELD(trainer.padded_captions), .default_text = "none", .choices = padding_choices,
     .metavar = "KIND",
     .help = "how captions are batched. none: packed; longest: padded to the longest of the batch "
             "(slower; same result up to rounding)"},
    {"loader-threads", 0, CLI_U64, FIELD(trainer.loader_threads), .min = "0", .max = "1024",
     .default_text = "0", .metavar = "N",
     .help = "decode threads per rank; 0: one per CPU, divided by the ranks on this host. Does not "
             "affect batches"},
    {"io-engine", 0, CLI_ENUM, .alias = "engine", FIELD(trainer.engine), .default_text = "auto",
     .choices = engine_choices, .metavar = "NAME",
     .help = "I/O engine; auto: io_uring if the kernel allows it, else pread"},
    CLI_REMOTE_ROWS(struct train_options, remote),
};

static const struct cli_program fixed = {
    .name = "ccstream-train",
    .purpose = "trains an image and a text tower with a global contrastive loss",
    .usage = CLI_TEXTS("--data DIR --out RUN [options]",
                       "--data DIR:WEIGHT --data DIR:WEIGHT --out RUN [options]",
                       "--resume RUN [options]"),
    .examples = CLI_TEXTS("ccstream-train --data cc3m --val coco-val --out runs/a "
                          "--loss nuclr --batch-size 512 --epochs 30",
                          "ccstream-train --data small --out runs/b --image-tower "
                          "resnet18 --text-tower tiny --image-size 96 "
                          "--batch-size 128 --epochs 5 --zeta-freeze-epochs 1",
                          "ccstream-train --data cc3m:0.7 --data coco:0.3 --out runs/c",
                          "ccstream-train --init runs/a --data other --out runs/d",
                          "ccstream-train --resume runs/a --epochs 60"),
    .notes = CLI_TEXTS(
        "On SIGINT, SIGTERM and SIGUSR1 the run finishes the step, saves a checkpoint and exits "
        "with code 0; --resume continues exactly there. A second signal exits at once.",
        "With mpirun -n W, srun -n W or torchrun --no-python --nproc-per-node W, W ranks train "
        "together: each reads and encodes its part of every batch, and all finish with the same "
        "model, state and metrics. If a rank fails, the others name it and exit with code 75; "
        "--resume continues from the last checkpoint, with any number of ranks. A signal to one "
        "rank stops all of them.",
        "An epoch of a mix has as many samples as all its datasets together. Sample ids of each "
        "dataset start after those of the previous one, in the order given; --resume requires the "
        "same datasets and weights in that order. Samples added by ccpack --append join when "
        "--resume restarts the epoch.",
        TRAIN_PRESETS_OF_NUCLR,
        TRAIN_PRESETS_OF_FASTCLIP,
        TRAIN_PRESETS_OF_EMC2,
        "Defaults of losses: for pairs those of Wang's comparison on CC3M (fastclip: Wei's), with "
        "--task two-views those of each paper. --steps does not shorten schedules."),
    .options = rows,
    .option_count = CLI_COUNT(rows),
};

const struct cli_program *train_program(void) {
    static struct cli_option loss_rows[] = {
        {"loss", 'l', CLI_ENUM, FIELD(loss_index), .default_text = "nuclr", .metavar = "NAME",
         .group = "Loss",
         .help = "loss, see Losses below; --help NAME lists the options of a loss"},
        {"variant", 0, CLI_ENUM, .alias = "parity", .aliases = variant_aliases,
         FIELD(trainer.loss.parity), .default_text = "paper", .choices = variant_choices,
         .metavar = "KIND", .group = "Loss",
         .help = "paper: the published algorithm; code: where the published code differs (sogclr, "
                 "isogclr, nuclr), what it computes, including its learning rates"},
        {"text-state", 0, CLI_ENUM, FIELD(trainer.text_state), .default_text = "sample",
         .choices = text_state_choices, .metavar = "WHAT", .group = "Loss",
         .help = "per-sample state of texts (u, zeta, tau) if images have several captions. "
                 "sample: one entry per sample, whichever caption is drawn; caption: one per "
                 "caption and per column of --caption-columns. With --positives each pair of a "
                 "sample has its own entry. A resumed run keeps its setting"},
    };
    static struct cli_rows shared[3] = {CLI_ROWS(loss_rows), {NULL, 0}, {NULL, 0}};
    static struct cli_program program;
    loss_rows[0].choices = loss_names();
    shared[1].rows =
        loss_help_options(offsetof(struct train_options, trainer.loss), &shared[1].count);
    program = fixed;
    program.shared = shared;
    program.list_heading = "Losses";
    program.list = loss_help_losses(false);
    program.topic = loss_help_topic;
    program.topics = loss_names();
    program.help_help = "this text; --help LOSS: the options of a loss and their defaults; --help "
                        "all: every option";
    static const struct cli_rows brief_rows[] = {CLI_ROWS(loss_rows), {NULL, 0}};
    static struct cli_program brief;
    brief = program;
    brief.shared = brief_rows;
    brief.list = loss_help_losses(true);
    program.brief = &brief;
    return &program;
}

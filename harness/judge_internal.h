/* What the judge's files share: the judge, its cache, a session (one kernel on one set of guarded tensors), quantized
 * operands, and the drivers. Private to harness/judge*.c. */
#ifndef NG_HARNESS_JUDGE_INTERNAL_H
#define NG_HARNESS_JUDGE_INTERNAL_H

#include "harness/buffers.h"
#include "harness/judge.h"
#include "harness/nvml.h"
#include "harness/timing.h"
#include "harness/verdict.h"
#include "reference/gemm.h"

/* ---- cache: what consecutive cases share (source data, quantized operands, exact products, maxima) ---------------- */
enum { NG_KEY_BYTES = 512 };
typedef struct ng_key {
    char text[NG_KEY_BYTES]; /* everything that the value depends on */
} ng_key;

typedef struct ng_cache_entry {
    ng_key key;
    void *value;
    void (*release)(void *value);
    size_t bytes;
    uint64_t used; /* the case that last asked for it: never dropped during that case */
} ng_cache_entry;

enum { NG_CACHE_ENTRIES = 128 };
typedef struct ng_cache {
    ng_cache_entry entries[NG_CACHE_ENTRIES];
    int count;
    size_t bytes, limit;
    uint64_t now;
} ng_cache;

void *ng_cache_find(ng_cache *cache, const ng_key *key);
/* Takes the value over, whatever comes back. */
ng_status ng_cache_put(ng_cache *cache, const ng_key *key, void *value, void (*release)(void *), size_t bytes, ng_error *error);
void ng_cache_clear(ng_cache *cache);
void ng_key_set(ng_key *key, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ng_key_add(ng_key *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct ng_judge {
    ng_settings settings;
    ng_catalogue catalogue;
    ng_device cpu;
    int most_threads, threads; /* allowed; of the case at hand */
    ng_cache cache;
    ng_ceilings ceilings;
    bool ceilings_known, blas_known;
    ng_gpu gpu;             /* opened by the first case that needs it */
    bool gpu_tried;
    ng_error gpu_absent;    /* why there is none; status NG_OK: there is one */
    ng_nvml nvml;
    double gpu_copy_bytes_s; /* 0: not measured yet, NaN: can't be */
};

/* False: there is no GPU to use, and judge->gpu_absent says why. */
bool ng_judge_has_gpu(ng_judge *judge);

/* The random words that the judge hands to kernels, and its choices. */
uint32_t ng_word(uint64_t seed, uint64_t index);

/* Tells the settings' observer, if there is one. expected or exact is given. */
void ng_observe(const ng_judge *judge, const ng_case *one, ng_role role, const ng_tensor *computed, const ng_tensor *expected,
                const double *exact);

/* ---- source data and operands --------------------------------------------------------------------------------------*/
/* The window [row0, row0 + rows) x [column0, + columns) of the described tensor in `format`; owned by the cache. */
ng_status ng_source(ng_judge *judge, const ng_data_spec *spec, ng_format_id format, int64_t row0, int64_t column0,
                    int64_t rows, int64_t columns, const ng_tensor **source, ng_key *key, ng_error *error);
/* The format of the data that an operand is made from. */
ng_format_id ng_source_format(const ng_quantization *quantization);
/* The largest magnitude of the whole described tensor, cached. */
ng_status ng_source_amax(ng_judge *judge, const ng_data_spec *spec, ng_format_id format, double *amax, ng_error *error);

typedef struct ng_quantized {
    ng_operand operand;        /* tensors owned */
    double saturated, flushed; /* counts of elements */
} ng_quantized;

/* By the reference (integer tier). amax NULL: the tensor's own. inputs may be NULL. */
ng_status ng_quantize(const ng_quantization *quantization, const ng_tensor *source, const ng_quantize_inputs *inputs,
                      int threads, ng_quantized *quantized, ng_error *error);
void ng_quantized_free(ng_quantized *quantized);
/* The tensor that a quantizer of this contract quantizes: source itself, or its Hadamard transform in *made (owned), as for OUT
 * or, where source is transposed already, OUT_T. */
ng_status ng_quantizer_input(const ng_contract *contract, bool transposed, const ng_tensor *source, int threads, ng_tensor *made,
                             const ng_tensor **input, ng_error *error);
/* The catalogue's quantizer for a backend that does just that, nothing before it; NULL: none. */
const ng_kernel *ng_find_quantizer(const ng_catalogue *catalogue, ng_backend backend, ng_format_id in, const ng_quantization *quantization);
/* A format without scales: each element rounded once, saturating. */
bool ng_is_plain(const ng_quantization *quantization);
/* The value that element (i, j) stands for; exact. */
double ng_operand_value(const ng_operand *operand, int64_t i, int64_t j);
/* Row i of the operand as binary64. */
void ng_operand_row(const ng_operand *operand, int64_t i, double *values);
/* Counts elements beyond the largest representable value, and non-zero ones that became zero. */
void ng_count_losses(const ng_tensor *source, const ng_operand *operand, int threads, double *saturated, double *flushed);

/* ---- sessions ------------------------------------------------------------------------------------------------------*/
typedef struct ng_session {
    ng_judge *judge;
    const ng_kernel *kernel;
    ng_problem problem;
    ng_device device;
    int variant;
    ng_guarded roles[NG_ROLES];
    ng_tensor first[NG_ROLES]; /* outputs of the first launch */
    uint64_t written;          /* bit per role: outputs */
    const ng_tensor *initial[NG_ROLES]; /* what an output holds before a launch; NULL: poison */
    int64_t list_count;         /* ng_session_list */
    const int64_t *list_widths;
    uint32_t list_block;
    ng_tensor *listed;          /* [NG_ROLES][list_count] */
    ng_guarded workspace;
    ng_error broken;           /* what kept a launch from having a verdict: the device, memory; status NG_OK: nothing */
} ng_session;

/* False: *result is a skip with the kernel's reason. */
bool ng_session_begin(ng_session *session, ng_judge *judge, const ng_kernel *kernel, const ng_problem *problem,
                      ng_result *result);
ng_status ng_session_input(ng_session *session, ng_role role, const ng_tensor *value, ng_error *error);
/* Without distance between rows: for layouts that say where every byte is. */
ng_status ng_session_input_dense(ng_session *session, ng_role role, const ng_tensor *value, ng_error *error);
ng_status ng_session_output(ng_session *session, ng_role role, ng_format_id format, int64_t rows, int64_t columns,
                            ng_error *error);
/* The rows of the tensors of `count` rows become the tensors of a list, the i-th of widths[i] columns (of blocks of `block`, where a role
 * has one column a block). The widths stay the caller's. After the roles are made. */
ng_status ng_session_list(ng_session *session, const int64_t *widths, int64_t count, uint32_t block, ng_error *error);
void ng_session_end(ng_session *session);

/* One launch. watched: outputs are poisoned before, and inputs compared after; guards are looked at in any case. Buffers of
 * a GPU are sent and fetched; unwatched ones are not, but for their guards. False: it failed or broke a rule, and was
 * accused (not of NG_UNSUPPORTED where quiet); or the device failed, and session->broken says how; or the device has no
 * code of the kernel, and the result is a skip. */
bool ng_session_launch(ng_session *session, int poison, bool quiet, bool watched, ng_result *result);

/* Launches at least twice (once where that takes long and no repeats are asked for), under different poisons and numbers
 * of threads. Accuses of writes outside, changed inputs, unwritten elements, bits that change, a launch that fails (then *launched is
 * false, and there are no outputs). What the first launch wrote stays in session->first. quiet: NG_UNSUPPORTED from launch is
 * no accusation. */
ng_status ng_session_run(ng_session *session, uint32_t repeats, bool quiet, ng_result *result, bool *launched, ng_error *error);

/* What a failed launch means for the case: NG_OK where it was accused. */
ng_status ng_session_broken(const ng_session *session, ng_error *error);

/* Times the sessions one after the other as one operation; names [count] of the parts, NULL for a single one. */
ng_status ng_session_time(ng_session *const *sessions, const char *const *names, int count, ng_level level, double flop,
                          ng_result *result, ng_error *error);

/* The same on a GPU, with the bytes that the operation moves. */
ng_status ng_session_time_gpu(ng_session *const *sessions, const char *const *names, int count, double limit_s, double flop,
                              double bytes, ng_result *result, ng_error *error);
/* A launch of the session's kernel on its tensors. */
void ng_session_fill(const ng_session *session, ng_launch *launch);

/* The digest of the outputs, into the result. */
void ng_session_digest(const ng_session *session, ng_result *result);

/* What follows a comparison that began at `start`: digest, time of verification, speed, saved outputs. */
ng_status ng_session_conclude(ng_session *session, const ng_case *one, double start, double flop, ng_result *result, ng_error *error);

extern const char *const ng_role_names[NG_ROLES];

/* ---- drivers: one an operation -------------------------------------------------------------------------------------*/
typedef ng_status (*ng_driver)(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_cast(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_every_input(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
/* All 2^32 fp32 inputs, against thresholds proved by the reference. */
ng_status ng_judge_sweep(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_quantize(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_dequantize(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_norm(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
/* Products, norms, activations, cross-entropy and optimizers whose tensors are all binary64. */
ng_status ng_judge_fp64(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
/* ---- variants -------------------------------------------------------------------------------------------------------*/
enum { NG_ALGORITHM_BYTES = sizeof ((ng_speed *)0)->algorithm };
/* The contract of a variant, and what it is in words. NG_UNSUPPORTED: there is no such variant. */
ng_status ng_take_variant(const ng_kernel *kernel, const ng_problem *problem, const ng_device *device, int variant, ng_contract *contract,
                          char algorithm[NG_ALGORITHM_BYTES]);
/* Judges one variant into *own; first: what the first came to. */
typedef ng_status (*ng_variant_judge)(void *context, int variant, const ng_result *first, ng_result *own, ng_error *error);
/* Lists the first variant in *result, then judges and lists the others that are wanted; what they are accused of, the case is.
 * algorithm: the words of the variant at hand, which judge_one keeps up to date. */
ng_status ng_each_variant(const ng_judge *judge, const ng_case *one, const ng_problem *problem, const ng_device *device, const char *algorithm,
                          ng_variant_judge judge_one, void *context, ng_result *result, ng_error *error);

/* "hopper-wgmma-fp8, promoted every 128" */
void ng_describe_sum(const ng_accumulation *sum, char *text, size_t bytes);
/* Products of full size on a GPU (judge_whole.c; with CUDA only), and whether a case is one. */
bool ng_judges_whole(ng_judge *judge, const ng_case *one);
ng_status ng_judge_whole(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_gemm(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_scale_update(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_hadamard(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);

ng_status ng_judge_attention(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_layer(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_optimizer(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_activation(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);
ng_status ng_judge_loss(ng_judge *judge, const ng_case *one, ng_result *result, ng_error *error);

/* ---- several outputs of one launch, each with its exact values and bounds ------------------------------------------*/
/* Exact values of a tensor or a piece of one, and what a result may be off by before its cast. */
typedef struct ng_values {
    double *high, *low, *bound; /* [count] */
} ng_values;
ng_status ng_values_create(int64_t count, ng_values *values, ng_error *error);
void ng_values_free(ng_values *values);

/* Data are binary32 numbers: a part of each, below 2^-24, for the other digits of a dense binary64 tensor. */
void ng_fill_low_digits(const ng_tensor *t, uint64_t seed);

/* Figures by role. */
typedef struct ng_tallies {
    ng_tally role[NG_ROLES];
    int64_t elements[NG_ROLES]; /* 0: not compared */
    int64_t by_tier[NG_TIERS];
} ng_tallies;
void ng_tallies_begin(ng_tallies *tallies);
ng_status ng_tallies_add(ng_judge *judge, const ng_case *one, ng_tallies *tallies, ng_role role, const ng_tensor *part, const ng_cast *cast,
                         const ng_values *values, int64_t row0);
/* Accuses by role; the case's figures are those of the role that came closest to its bound, or is furthest beyond. *power: of all. */
void ng_tallies_publish(const ng_tallies *tallies, ng_result *result, ng_power *power);

/* Bits that a role must hold. */
ng_status ng_tallies_add_codes(ng_judge *judge, ng_tallies *tallies, ng_role role, const ng_tensor *part, const ng_tensor *want);

/* Whether the fast tier settles that y is right: within what is left of the bound once its own remainder is taken off. */
bool ng_running_settles(ng_format_id format, const ng_cast *cast, double y, double c, double e, double r);

/* Compares bits with the prediction, adding to it; a difference is NG_MOVED. */
void ng_compare_prediction(ng_judge *judge, ng_role role, const ng_tensor *computed, const ng_tensor *want, ng_result *result);

/* Rows [row0, row0 + rows) of a tensor. */
ng_tensor ng_rows_of(const ng_tensor *t, int64_t row0, int64_t rows);

/* How one element's draw came out. */
typedef struct ng_draw {
    float deviation, variance; /* up - p; p (1 - p); both 0 where nothing is random */
} ng_draw;

/* Whether the draws of a tensor [count / columns][columns] look like their probabilities and independent of each other. */
void ng_check_draw_list(const ng_draw *draws, int64_t count, int64_t columns, ng_result *result, double *randomness);
/* Whether two lists of draws for the same elements are independent: of other seeds, other steps. other: what the second one has. */
void ng_check_draw_lists(const ng_draw *draws, const ng_draw *others, int64_t count, const char *other, ng_result *result);
/* Whether those of a tensor [rows][columns] and of its transposed copy [columns][rows] are independent. */
void ng_check_draw_pairs(const ng_draw *draws, const ng_draw *others, int64_t rows, int64_t columns, ng_result *result);

/* Whether bits drawn by the kernel itself look like the stated probabilities: per interval of probability, and between
 * neighbouring elements. *randomness: the variance of the number of elements that round up. */
ng_status ng_check_draws(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, ng_result *result,
                         double *randomness, ng_error *error);
/* The draws of a cast [rows][columns]; accuses of results that no word leads to. */
void ng_draws_of_cast(const ng_tensor *source, const ng_tensor *out, const ng_cast *cast, ng_draw *draws, ng_result *result);

/* The names of saved files: an id and a role, without what a file name cannot hold. */
void ng_mangle_id(char *name);

/* Writes a tensor's codes as .npy into the settings' folder, where the case asks for it. */
ng_status ng_save(const ng_judge *judge, const ng_case *one, const ng_result *result, const char *what,
                  const ng_tensor *tensor, ng_error *error);
ng_status ng_save_session(const ng_session *session, const ng_case *one, const ng_result *result, ng_error *error);

#endif

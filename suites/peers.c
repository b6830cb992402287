#include "suites/peers.h"

#include "reference/format.h"
#include "reference/round.h"

#include <math.h>

const ng_peer_rule ng_peer_rules[NG_PEERS] = {
    [NG_PEER_ASSERT_CLOSE] = {"assert-close", "|t - r| <= atol + rtol |r|, PyTorch's defaults by dtype; 8-bit and narrower: equal"},
    [NG_PEER_TE_CPP] = {"te-cpp", "|t - r| <= atol or |(t - r) / r| <= rtol, or neighbours of their mean"},
    [NG_PEER_TE_PYTHON] = {"te-python", "|t - r| <= atol + rtol |r|, TransformerEngine's dtype_tols"},
    [NG_PEER_HIPBLASLT] = {"hipblaslt", "||t - r||_F < tol ||r||_F"},
    [NG_PEER_CUTLASS] = {"cutlass", "|t - r| < 0.05 (|t| + |r|), floor 1/256"},
    [NG_PEER_DEEPGEMM] = {"deepgemm", "1 - 2 <t, r> / (|t|^2 + |r|^2) < 1e-3"},
    [NG_PEER_SQNR] = {"sqnr", "10 log10(|r|^2 / |t - r|^2) >= 25 dB"},
    [NG_PEER_COSINE] = {"cosine", "<t, r> / (|t| |r|) > 0.99"},
};

typedef struct tolerance {
    double relative, absolute;
} tolerance;

/* torch.testing.assert_close: rtol and atol by dtype, 0 and 0 for those that its table lacks. */
static tolerance torch_defaults(ng_format_id format) {
    switch (format) {
    case NG_FP64: return (tolerance){1e-7, 1e-7};
    case NG_FP32:
    case NG_TF32: return (tolerance){1.3e-6, 1e-5};
    case NG_BF16: return (tolerance){1.6e-2, 1e-5};
    case NG_FP16: return (tolerance){1e-3, 1e-5};
    default: return (tolerance){0, 0};
    }
}

/* TransformerEngine tests/cpp: getTolerances. */
static tolerance te_cpp_tolerances(ng_format_id format) {
    switch (format) {
    case NG_FP64:
    case NG_FP32:
    case NG_TF32: return (tolerance){5e-6, 1e-6};
    case NG_BF16: return (tolerance){1e-2, 1e-5};
    case NG_FP16: return (tolerance){1e-3, 1e-5};
    default: return (tolerance){1e-2, 1e-2};
    }
}

/* TransformerEngine tests/pytorch/utils.py: dtype_tols. */
static tolerance te_python_tolerances(ng_format_id format) {
    switch (format) {
    case NG_E4M3:
    case NG_E2M3:
    case NG_UE4M3: return (tolerance){0.125, 0.0675};
    case NG_E5M2:
    case NG_E3M2:
    case NG_E2M1: return (tolerance){0.25, 0.125};
    default: return torch_defaults(format);
    }
}

/* hipBLASLt clients: the norm check's tolerance by output type; 0: none. */
static double hipblaslt_tolerance(ng_format_id format) {
    switch (format) {
    case NG_FP32:
    case NG_TF32: return 1e-5;
    case NG_FP16: return 1e-2;
    case NG_BF16: return 0.1;
    case NG_E4M3: return 0.125;
    case NG_E5M2: return 0.25;
    default: return 0;
    }
}

/* As torch.allclose: equal infinities are close, NaN is close to nothing. */
static bool is_close(double t, double r, tolerance tol) {
    return t == r || fabs(t - r) <= tol.absolute + tol.relative * fabs(r);
}

static double rounded(ng_format_id format, double x) {
    static const ng_cast nearest = {.rounding = NG_RN_EVEN};
    return ng_decode(format, ng_round(format, x, &nearest, 0));
}

/* A rounding error that fell on the other side of a tie is forgiven: t and r are what their mean, moved by 1e-6 of itself
 * down and up, rounds to. Comparisons with NaN are false, so NaN is no mismatch. */
static bool te_mismatch(ng_format_id format, double t, double r) {
    const tolerance tol = te_cpp_tolerances(format);
    bool mismatch = fabs(t - r) > tol.absolute && (r == 0 || fabs((t - r) / r) > tol.relative);
    if (!mismatch || format == NG_FP32 || format == NG_FP64) return mismatch;
    double mean = (t + r) / 2, low = mean - fabs(mean) * 1e-6, high = mean + fabs(mean) * 1e-6;
    return !(rounded(format, low) == fmin(t, r) && rounded(format, high) == fmax(t, r));
}

static bool cutlass_equal(double t, double r) {
    static const double epsilon = 0.05, floor_ = 1.0 / 256;
    double difference = fabs(t - r);
    if (t == r) return true;
    if (t == 0 || r == 0 || difference < floor_) return difference < epsilon * floor_;
    return difference / (fabs(t) + fabs(r)) < epsilon;
}

typedef struct sums {
    double tt, rr, tr, ee;
} sums;

static unsigned reject_sums(ng_format_id format, const sums *s) {
    double norm = hipblaslt_tolerance(format);
    unsigned rejected = 0;
    if (norm > 0 && !(s->ee == 0 || sqrt(s->ee) < norm * sqrt(s->rr))) rejected |= 1u << NG_PEER_HIPBLASLT;
    if (s->tt + s->rr != 0 && !(1 - 2 * s->tr / (s->tt + s->rr) < 1e-3)) rejected |= 1u << NG_PEER_DEEPGEMM;
    if (s->ee != 0 && !(10 * log10(s->rr / s->ee) >= 25)) rejected |= 1u << NG_PEER_SQNR;
    if (s->tt + s->rr != 0 && !(s->tr / (sqrt(s->tt) * sqrt(s->rr)) > 0.99)) rejected |= 1u << NG_PEER_COSINE;
    return rejected;
}

static double reference_value(const ng_observation *o, int64_t i, int64_t j) {
    if (o->expected) return ng_get_value(o->expected, i, j);
    const ng_cast *cast = &o->one->kernel->contract.cast;
    double exact = o->exact[i * o->computed->columns + j];
    return ng_decode(o->computed->format, ng_round(o->computed->format, exact, cast, 0));
}

unsigned ng_peers_reject(const ng_observation *o) {
    const ng_format_id format = o->computed->format;
    const tolerance torch = torch_defaults(format), te_python = te_python_tolerances(format);
    unsigned rejected = 0;
    sums s = {0};
    for (int64_t i = 0; i < o->computed->rows; i++)
        for (int64_t j = 0; j < o->computed->columns; j++) {
            double t = ng_get_value(o->computed, i, j), r = reference_value(o, i, j);
            s.tt += t * t;
            s.rr += r * r;
            s.tr += t * r;
            if (t == r) continue;
            s.ee += (t - r) * (t - r);
            if (!is_close(t, r, torch)) rejected |= 1u << NG_PEER_ASSERT_CLOSE;
            if (te_mismatch(format, t, r)) rejected |= 1u << NG_PEER_TE_CPP;
            if (!is_close(t, r, te_python)) rejected |= 1u << NG_PEER_TE_PYTHON;
            if (!cutlass_equal(t, r)) rejected |= 1u << NG_PEER_CUTLASS;
        }
    return rejected | reject_sums(format, &s);
}

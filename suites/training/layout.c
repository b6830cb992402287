/* Parameters: which there are, where they lie, what they are at first. */
#include "suites/training/model.h"

#include "kernels/common/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const ng_part_names[NG_PARTS] = {"embedding", "qkv", "projection", "gate", "up", "down", "norm 1 gamma", "norm 1 beta",
                                             "norm 2 gamma", "norm 2 beta", "norm gamma", "norm beta"};

ng_status ng_model_shape_check(const ng_model_shape *s, ng_error *error) {
    if (s->layers < 1 || s->width < 32 || s->heads < 1 || s->sequence < 2 || s->batch < 1 || s->vocabulary < 2)
        return ng_fail(error, NG_BAD_ARGUMENT, "a model has a layer, a head, a width of 32, a sequence of 2 or more");
    if (s->width % 32 || s->hidden % 32 || s->width % s->heads || s->width / s->heads % 2 || s->width / s->heads > 256)
        return ng_fail(error, NG_BAD_ARGUMENT, "width and hidden width are multiples of 32, the width of a head is even and at most 256");
    if (s->batch * s->sequence % 32 || s->vocabulary % 16)
        return ng_fail(error, NG_BAD_ARGUMENT, "batch times sequence is a multiple of 32, the vocabulary of 16");
    return NG_OK;
}

static void extents(const ng_model_shape *s, ng_part part, int64_t *rows, int64_t *columns) {
    *rows = 1;
    *columns = s->width;
    switch (part) {
    case NG_PART_EMBEDDING: *rows = s->vocabulary; break;
    case NG_PART_QKV: *rows = 3 * s->width; break;
    case NG_PART_PROJECTION: *rows = s->width; break;
    case NG_PART_GATE:
    case NG_PART_UP: *rows = s->hidden; break;
    case NG_PART_DOWN: *rows = s->width, *columns = s->hidden; break;
    default: break;
    }
}

static bool has(const ng_model_shape *s, ng_part part) {
    if (part == NG_PART_GATE) return s->swiglu;
    return !(s->rms && (part == NG_PART_BETA_1 || part == NG_PART_BETA_2 || part == NG_PART_BETA));
}

static bool of_model(ng_part part) { return part == NG_PART_EMBEDDING || part == NG_PART_GAMMA || part == NG_PART_BETA; }

static void add(ng_layout *layout, const ng_model_shape *s, ng_part part, int layer) {
    ng_parameter *p = &layout->parameters[layout->count++];
    *p = (ng_parameter){.part = part, .layer = layer, .at = layout->total};
    extents(s, part, &p->rows, &p->columns);
    if (layer < 0) snprintf(p->name, sizeof p->name, "%s", ng_part_names[part]);
    else snprintf(p->name, sizeof p->name, "block %d %s", layer, ng_part_names[part]);
    layout->elements += p->rows * p->columns;
    layout->total += (p->rows * p->columns + 63) / 64 * 64;
}

ng_status ng_layout_create(const ng_model_shape *shape, ng_layout *layout, ng_error *error) {
    *layout = (ng_layout){.parameters = calloc((size_t)(NG_PARTS * (shape->layers + 1)), sizeof(ng_parameter))};
    if (!layout->parameters) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    for (int part = 0; part < NG_PARTS; part++) {
        if (part == NG_PART_GAMMA_1) layout->decayed = layout->total;
        for (int layer = 0; layer < (of_model((ng_part)part) ? 1 : shape->layers); layer++)
            if (has(shape, (ng_part)part)) add(layout, shape, (ng_part)part, of_model((ng_part)part) ? -1 : layer);
    }
    return NG_OK;
}

void ng_layout_free(ng_layout *layout) {
    free(layout->parameters);
    *layout = (ng_layout){0};
}

static double deviation(const ng_parameter *p, const ng_model_shape *s) {
    const double plain = 1 / sqrt((double)p->columns);
    if (p->part == NG_PART_EMBEDDING) return 0.5 * plain;
    return p->part == NG_PART_PROJECTION || p->part == NG_PART_DOWN ? plain / sqrt(2.0 * (double)s->layers) : plain;
}

enum { INITIAL = 7 }; /* stream of the generator: source.c has the others */

void ng_layout_initialize(const ng_layout *layout, const ng_model_shape *shape, uint64_t seed, float *weights) {
    for (int64_t i = 0; i < layout->total; i++)
        weights[i] = 0;
    for (size_t j = 0; j < layout->count; j++) {
        const ng_parameter *p = &layout->parameters[j];
        const double width = sqrt(3.0) * deviation(p, shape); /* of a uniform distribution on both sides of 0 */
        for (int64_t i = 0; i < p->rows * p->columns; i++) {
            if (p->part >= NG_PART_GAMMA_1) weights[p->at + i] = p->part == NG_PART_GAMMA_1 || p->part == NG_PART_GAMMA_2 || p->part == NG_PART_GAMMA;
            else weights[p->at + i] = (float)(width * (2 * ((double)ng_philox(seed, (uint64_t)INITIAL << 56, (uint64_t)(p->at + i)) + 0.5) / 0x1p32 - 1));
        }
    }
}

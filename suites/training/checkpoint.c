/* A session on disk: a header, the curves so far, the baseline's weights, the state of the run in flight, a digest of all that. Whoever
 * is killed at any time finds the last one whole: it is written beside its place, synced and renamed. */
#include "suites/training/session.h"

#include "harness/output.h"
#include "harness/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char magic[16] = "narrowgauge.tr/1";

typedef struct header {
    char magic[16];
    uint64_t identity, curves, state_bytes;
    int64_t steps, evaluations, total;
} header;

typedef struct saved_curve {
    int64_t done, finished;
    double time_s, scale;
} saved_curve;

/* ---- bytes, and their digest --------------------------------------------------------------------------------------*/
typedef struct stream {
    FILE *file;
    XXH3_state_t *digest;
    bool writes, failed;
} stream;

static void pass(stream *s, void *data, size_t bytes) {
    if (s->failed || !bytes) return;
    s->failed = s->writes ? fwrite(data, 1, bytes, s->file) != bytes : fread(data, 1, bytes, s->file) != bytes;
    if (!s->failed) XXH3_64bits_update(s->digest, data, bytes);
}

static void pass_curve(stream *s, const ng_training *session, ng_curve *c) {
    saved_curve saved = {c->done, c->finished, c->time_s, c->scale};
    pass(s, &saved, sizeof saved);
    if (saved.done < 0 || saved.done > session->settings.steps) s->failed = true;
    if (s->failed) return;
    c->done = saved.done, c->finished = saved.finished, c->time_s = saved.time_s, c->scale = saved.scale;
    pass(s, c->losses, (size_t)c->done * sizeof(double));
    pass(s, c->norms, (size_t)c->done * sizeof(double));
    if (c->finished) pass(s, c->final_losses, (size_t)session->settings.evaluations * sizeof(double));
}

static void pass_weights(stream *s, ng_training *session, size_t seed) {
    const size_t bytes = (size_t)session->layout.total * sizeof(float);
    uint64_t there = session->weights[seed] != NULL;
    pass(s, &there, sizeof there);
    if (s->failed || !there) return;
    if (!s->writes && !(session->weights[seed] = malloc(bytes))) s->failed = true;
    else pass(s, session->weights[seed], bytes);
}

static void pass_all(stream *s, ng_training *session) {
    const size_t curves = session->recipe_count * session->seed_capacity;
    for (size_t i = 0; i < curves; i++)
        pass_curve(s, session, &session->curves[i]);
    for (size_t i = 0; i < session->seed_capacity; i++)
        pass_weights(s, session, i);
    pass(s, session->state, session->state_bytes);
}

static header header_of(const ng_training *session) {
    header h = {.identity = session->identity, .curves = session->recipe_count * session->seed_capacity, .state_bytes = session->state_bytes,
                .steps = session->settings.steps, .evaluations = session->settings.evaluations, .total = session->layout.total};
    memcpy(h.magic, magic, sizeof h.magic);
    return h;
}

/* ---- the two directions -------------------------------------------------------------------------------------------*/
ng_status ng_checkpoint_write(ng_training *session, ng_error *error) {
    ng_output output = {0};
    header h = header_of(session);
    if (!session->checkpoint) return NG_OK;
    ng_status status = ng_output_open(session->checkpoint, &output, error);
    if (status) return status;
    stream s = {output.stream, XXH3_createState(), true, false};
    if (!s.digest) status = ng_fail(error, NG_NO_MEMORY, "out of memory");
    else {
        XXH3_64bits_reset(s.digest);
        pass(&s, &h, sizeof h);
        pass_all(&s, session);
        uint64_t digest = XXH3_64bits_digest(s.digest);
        pass(&s, &digest, sizeof digest);
        if (s.failed) status = ng_fail(error, NG_IO, "%s: %s", session->checkpoint, strerror(errno));
    }
    XXH3_freeState(s.digest);
    if (!status) status = ng_output_commit(&output, error);
    ng_output_discard(&output);
    session->written_s = ng_monotonic_s();
    return status;
}

static ng_status read_body(ng_training *session, stream *s, ng_error *error) {
    header h, expected = header_of(session);
    pass(s, &h, sizeof h);
    if (s->failed || memcmp(h.magic, magic, sizeof h.magic)) return ng_fail(error, NG_BAD_ARGUMENT, "%s is no checkpoint", session->checkpoint);
    expected.state_bytes = h.state_bytes;
    if (memcmp(&h, &expected, sizeof h) || h.state_bytes > (uint64_t)1 << 40)
        return ng_fail(error, NG_BAD_ARGUMENT, "%s is a checkpoint of other options; --resume takes those of the run that it goes on with", session->checkpoint);
    if (h.state_bytes && !(session->state = malloc(h.state_bytes))) return ng_fail(error, NG_NO_MEMORY, "out of memory");
    session->state_bytes = h.state_bytes;
    pass_all(s, session);
    const uint64_t digest = XXH3_64bits_digest(s->digest);
    uint64_t written = 0;
    pass(s, &written, sizeof written);
    return s->failed || written != digest ? ng_fail(error, NG_BAD_ARGUMENT, "%s is damaged: its digest does not fit", session->checkpoint) : NG_OK;
}

ng_status ng_checkpoint_read(ng_training *session, ng_error *error) {
    FILE *file = fopen(session->checkpoint, "rb");
    if (!file && errno == ENOENT) return NG_OK;
    if (!file) return ng_fail(error, NG_IO, "%s: %s", session->checkpoint, strerror(errno));
    stream s = {file, XXH3_createState(), false, false};
    ng_status status = NG_NO_MEMORY;
    if (!s.digest) ng_fail(error, NG_NO_MEMORY, "out of memory");
    else {
        XXH3_64bits_reset(s.digest);
        status = read_body(session, &s, error);
    }
    XXH3_freeState(s.digest);
    fclose(file);
    return status;
}

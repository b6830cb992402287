/* What a run has done so far, in JSON lines: a header, one line a case, an end line. Appended to and synced line by line,
 * so that a crash or a power cut loses the case in flight at most; `run --resume` reads it back. A last line that is torn
 * is dropped; anything else that does not fit is an error. */
#ifndef NG_HARNESS_JOURNAL_H
#define NG_HARNESS_JOURNAL_H

#include "harness/record.h"

#define NG_JOURNAL_SCHEMA "narrowgauge.journal/1"

typedef struct ng_journal {
    int fd; /* -1: none */
    const char *path;
} ng_journal;

typedef struct ng_journal_entry {
    size_t index; /* of the case in the run's list */
    char id[NG_ID_BYTES];
    ng_result result;
} ng_journal_entry;

/* A journal that was read. */
typedef struct ng_journal_past {
    struct cJSON *header;
    char run[33], started[32];
    int argc;
    char **argv;             /* of the run that wrote it; strings belong to header */
    ng_journal_entry *entries;
    size_t count;
    size_t whole_bytes;      /* up to the end of the last whole line */
    size_t bytes;            /* with what follows it */
    bool ended;
} ng_journal_past;

/* Starts a journal; a file that is already there is an error. */
ng_status ng_journal_create(const char *path, const ng_run_record *run, ng_journal *journal, ng_error *error);

ng_status ng_journal_read(const char *path, ng_journal_past *past, ng_error *error);
void ng_journal_past_free(ng_journal_past *past);

/* Whether the journal belongs to this run: same cases in the same order, seed, program, machine. Its results are copied
 * to results[] and marked in done[]. The error names what differs. */
ng_status ng_journal_match(const char *path, const ng_journal_past *past, const ng_run_record *run, ng_result *results,
                           bool *done, ng_error *error);

/* Goes on with a journal that was read: cuts off a torn line and appends. One process at a time. */
ng_status ng_journal_reopen(const char *path, const ng_journal_past *past, ng_journal *journal, ng_error *error);

/* On the disk when they return. */
ng_status ng_journal_append(ng_journal *journal, size_t index, const char *id, const ng_result *result, ng_error *error);
ng_status ng_journal_end(ng_journal *journal, const char *finished, ng_error *error);
void ng_journal_close(ng_journal *journal);

#endif

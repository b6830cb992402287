/* What a plug-in of faulty kernels tells about them, beside the kernels themselves: the right kernel whose contract each
 * claims, and the bug or practice that it imitates. A plug-in may export ng_fault_notes; one that does not is judged all the
 * same, by its contracts alone. */
#ifndef NG_SUITES_FAULTS_H
#define NG_SUITES_FAULTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ng_fault_note {
    const char *kernel;   /* the faulty kernel's name */
    const char *right;    /* a kernel of the program that keeps the same contract; NULL: none is known */
    const char *imitates; /* with its public reference */
} ng_fault_note;

typedef struct ng_fault_notes {
    uint32_t count;
    const ng_fault_note *notes;
} ng_fault_notes;

#define NG_FAULT_NOTES "ng_fault_notes_entry"
typedef const ng_fault_notes *(*ng_fault_notes_function)(void);

#ifdef __cplusplus
}
#endif
#endif

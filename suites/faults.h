/* `narrowgauge faults`: what the judge would miss, and what others miss. Runs faulty kernels from plug-ins, and the right
 * kernels whose contracts they claim, through the case tables, and prints and records which judge sees which fault. */
#ifndef NG_SUITES_FAULTS_COMMAND_H
#define NG_SUITES_FAULTS_COMMAND_H

#include "harness/command.h"

int ng_command_faults(const ng_program *program, int argc, char **argv);

#endif

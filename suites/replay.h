/* `replay FILE --contract NAME`: recorded tensor-core steps through a contract's model. */
#ifndef NG_SUITES_REPLAY_H
#define NG_SUITES_REPLAY_H

#include "harness/command.h"

int ng_command_replay(const ng_program *program, int argc, char **argv);

#endif

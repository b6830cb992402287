/* The command `train`: small models under training recipes, and whether each is worse than its baseline. */
#ifndef NG_SUITES_TRAINING_TRAIN_H
#define NG_SUITES_TRAINING_TRAIN_H

#include "harness/command.h"

int ng_command_train(const ng_program *program, int argc, char **argv);

#endif

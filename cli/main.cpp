// The main function of `tessera` and of the executables beside it.
#include "command.h"

int main(int argc, char** argv) {
  return tessera::cli::run_command({argv + 1, argv + argc});
}

#include <tessera/comm/communicator.h>

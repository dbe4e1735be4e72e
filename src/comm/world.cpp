#include <tessera/comm/world.h>

#include <tessera/comm/device_mesh.h>

// Everything a user needs: sharded tensors for LibTorch.
//
// Read in this order: layout (where does each element live), plan (how would we
// move it), comm (who are the ranks), tensor (make it look like one tensor),
// parallel (apply it to modules).
#pragma once

#include <tessera/comm/comm_log.h>
#include <tessera/comm/communicator.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/world.h>
#include <tessera/layout/box.h>
#include <tessera/layout/box_layout.h>
#include <tessera/layout/layout.h>
#include <tessera/layout/mesh_shape.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/placement.h>
#include <tessera/parallel/check_module.h>
#include <tessera/parallel/distribute_module.h>
#include <tessera/plan/cost.h>
#include <tessera/plan/exchange.h>
#include <tessera/plan/redistribute_plan.h>
#include <tessera/plan/step.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/dtensor_spec.h>
#include <tessera/tensor/explain.h>
#include <tessera/tensor/factories.h>
#include <tessera/tensor/gradient_check.h>
#include <tessera/tensor/machine_model.h>
#include <tessera/tensor/random.h>
#include <tessera/tensor/strict_mode.h>

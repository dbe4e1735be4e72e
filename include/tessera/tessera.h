// Everything a user needs: sharded tensors for LibTorch.
//
// Read in this order: layout (where does each element live), plan (how would we
// move it), comm (who are the ranks), tensor (make it look like one tensor),
// parallel (apply it to modules), sharded_tensor (PyTorch's earlier API on the
// same parts), checkpoint (keep it in files). docs/00_start.md has PyTorch's
// names beside ours.
#pragma once

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/state_dict.h>
#include <tessera/comm/comm_log.h>
#include <tessera/comm/communicator.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/flight_recorder.h>
#include <tessera/comm/from_process_group.h>
#include <tessera/comm/progress.h>
#include <tessera/comm/wait_hooks.h>
#include <tessera/comm/world.h>
#include <tessera/layout/box.h>
#include <tessera/layout/box_layout.h>
#include <tessera/layout/layout.h>
#include <tessera/layout/mesh_shape.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/placement.h>
#include <tessera/layout/replica_groups.h>
#include <tessera/layout/visualize_sharding.h>
#include <tessera/layout/xla.h>
#include <tessera/modules/materialize.h>
#include <tessera/parallel/activation_checkpoint.h>
#include <tessera/parallel/check_module.h>
#include <tessera/parallel/clip_grad_norm.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/distribute_module.h>
#include <tessera/parallel/ema.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/local_map.h>
#include <tessera/parallel/loss_parallel.h>
#include <tessera/parallel/loss_scaler.h>
#include <tessera/parallel/parallelize_module.h>
#include <tessera/parallel/tensor_packer.h>
#include <tessera/plan/cost.h>
#include <tessera/plan/exchange.h>
#include <tessera/plan/redistribute_plan.h>
#include <tessera/plan/step.h>
#include <tessera/rules/rule.h>
#include <tessera/rules/rule_table.h>
#include <tessera/sharded_tensor/conversion.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/errors.h>
#include <tessera/sharded_tensor/logger.h>
#include <tessera/sharded_tensor/metadata.h>
#include <tessera/sharded_tensor/ops.h>
#include <tessera/sharded_tensor/process_group.h>
#include <tessera/sharded_tensor/remote_device.h>
#include <tessera/sharded_tensor/serialize.h>
#include <tessera/sharded_tensor/shard.h>
#include <tessera/sharded_tensor/shard_module.h>
#include <tessera/sharded_tensor/sharded_module.h>
#include <tessera/sharded_tensor/sharded_optimizer.h>
#include <tessera/sharded_tensor/sharded_tensor.h>
#include <tessera/sharded_tensor/sharding_plan.h>
#include <tessera/sharded_tensor/sharding_spec.h>
#include <tessera/sharded_tensor/state_dict.h>
#include <tessera/tensor/deferred_init.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/dtensor_spec.h>
#include <tessera/tensor/explain.h>
#include <tessera/tensor/factories.h>
#include <tessera/tensor/gather_counts.h>
#include <tessera/tensor/gradient_check.h>
#include <tessera/tensor/machine_model.h>
#include <tessera/tensor/operators.h>
#include <tessera/tensor/predicted_time.h>
#include <tessera/tensor/random.h>
#include <tessera/tensor/replication_check.h>
#include <tessera/tensor/strict_mode.h>
#include <tessera/tensor/visualize_sharding.h>
#include <tessera/tensor/xla.h>

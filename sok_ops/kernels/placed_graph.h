// A graph whose ops have devices, for passes before TensorFlow cuts it into the parts of devices.
#ifndef SOK_SOK_OPS_KERNELS_PLACED_GRAPH_H_
#define SOK_SOK_OPS_KERNELS_PLACED_GRAPH_H_

#include <map>
#include <string>

#include "sok_ops/kernels/gpu_kernels.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace sok {

class PlacedGraph {
 public:
  explicit PlacedGraph(tensorflow::Graph* graph) : graph_(*graph) {}

  tensorflow::Graph& graph() { return graph_; }

  bool IsOn(const tensorflow::Node& node, const char* type) {
    const DeviceName& device = DeviceOf(node);
    return device.has_type && device.type == type;
  }
  // Whether both are in one process.
  bool AreTogether(const tensorflow::Node& a, const tensorflow::Node& b) {
    return tensorflow::DeviceNameUtils::IsSameAddressSpace(DeviceOf(a), DeviceOf(b));
  }

  static bool IsOfLibrary(const tensorflow::Node& node) { return node.type_string().rfind("Sok", 0) == 0; }

  bool HasLibraryOpOnGpu() {
    for (const tensorflow::Node* node : graph_.op_nodes()) {
      if (IsOfLibrary(*node) && IsOn(*node, "GPU")) return true;
    }
    return false;
  }

  // A new op on the device of `beside`.
  tensorflow::Status Add(tensorflow::NodeBuilder* builder, const tensorflow::Node& beside,
                         tensorflow::Node** added) {
    TF_RETURN_IF_ERROR(builder->Finalize(&graph_, added));
    (*added)->set_requested_device(beside.assigned_device_name());
    (*added)->set_assigned_device_name(beside.assigned_device_name());
    return tensorflow::Status();
  }

 private:
  using DeviceName = tensorflow::DeviceNameUtils::ParsedName;

  // Empty for a node without a device.
  const DeviceName& DeviceOf(const tensorflow::Node& node) {
    const auto [found, is_new] = devices_.try_emplace(node.assigned_device_name_index());
    if (is_new && node.has_assigned_device_name() &&
        !tensorflow::DeviceNameUtils::ParseFullName(node.assigned_device_name(), &found->second)) {
      found->second = DeviceName();
    }
    return found->second;
  }

  tensorflow::Graph& graph_;
  std::map<int, DeviceName> devices_;
};

// Runs `change` on the graph of a pass, a Status(PlacedGraph*), if ops of this library are on a GPU.
template <typename Change>
tensorflow::Status ChangeIfOnGpu(const tensorflow::GraphOptimizationPassOptions& options,
                                 const Change& change) {
  if (options.graph == nullptr || *options.graph == nullptr || !HasGpuEngine()) return tensorflow::Status();
  PlacedGraph graph(options.graph->get());
  return graph.HasLibraryOpOnGpu() ? change(&graph) : tensorflow::Status();
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_PLACED_GRAPH_H_

// A pass over graphs whose ops have devices: an order between ops on a CPU and on a GPU takes no copy.
//
// Where an op on the CPU runs after one on a GPU, or the other way round, TensorFlow copies an empty tensor,
// and waits until all earlier work of the GPU is done. But an op on the CPU has finished when it returns. And
// this library's ops have done what others have to wait for when their work is in the GPU's stream: whatever
// reads it comes later in that stream. So a number in host memory passes instead. Results do not change.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/placed_graph.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

class MarkOp : public tf::OpKernel {
 public:
  explicit MarkOp(tf::OpKernelConstruction* construction) : OpKernel(construction), mark_(int32_t{0}) {}
  void Compute(tf::OpKernelContext* context) override { context->set_output(0, mark_); }
  bool IsExpensive() override { return false; }

 private:
  const tf::Tensor mark_;
};
SOK_KERNEL(MarkOp, "SokMark", "mark");

class PassMarkOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* /*context*/) override {}
  bool IsExpensive() override { return false; }
};
SOK_KERNEL(PassMarkOp, "SokPassMark", "mark");

class ControlEdges {
 public:
  explicit ControlEdges(PlacedGraph* placed) : placed_(*placed), graph_(placed->graph()) {}

  tf::Status PassMarks();

 private:
  // Whether the op, on a GPU, has done all that others wait for when it has returned: an op of this library,
  // or one that only waits for such ops.
  bool OnlyEnqueues(const tf::Node& node);
  bool TakesCopy(const tf::Edge& edge);
  tf::Status Replace(const tf::Edge* edge);

  PlacedGraph& placed_;
  tf::Graph& graph_;
  std::map<const tf::Node*, bool> only_enqueues_;
  // The ops that run after a node: on its own device, and by name on others.
  std::map<const tf::Node*, tf::Node*> marks_;
  std::map<std::pair<const tf::Node*, std::string>, tf::Node*> passed_;
};

bool ControlEdges::OnlyEnqueues(const tf::Node& node) {
  if (PlacedGraph::IsOfLibrary(node)) return true;
  if (node.type_string() != "NoOp") return false;
  const auto known = only_enqueues_.find(&node);
  if (known != only_enqueues_.end()) return known->second;
  bool only = true;
  for (const tf::Edge* edge : node.in_edges()) {
    const tf::Node& before = *edge->src();
    only = only && (!before.IsOp() || placed_.IsOn(before, "CPU") || OnlyEnqueues(before));
  }
  return only_enqueues_[&node] = only;
}

bool ControlEdges::TakesCopy(const tf::Edge& edge) {
  const tf::Node& from = *edge.src();
  const tf::Node& to = *edge.dst();
  if (!edge.IsControlEdge() || !from.IsOp() || !to.IsOp()) return false;
  if (from.IsControlFlow() || to.IsControlFlow()) return false;
  if (!placed_.AreTogether(from, to)) return false;
  const bool leaves = placed_.IsOn(from, "GPU") && placed_.IsOn(to, "CPU") && OnlyEnqueues(from);
  const bool enters = placed_.IsOn(from, "CPU") && placed_.IsOn(to, "GPU");
  return leaves || enters;
}

tf::Status ControlEdges::Replace(const tf::Edge* edge) {
  tf::Node* const from = edge->src();
  tf::Node* const to = edge->dst();
  tf::Node*& mark = marks_[from];
  if (mark == nullptr) {
    tf::NodeBuilder builder(graph_.NewName(from->name() + "/sok_mark"), "SokMark");
    TF_RETURN_IF_ERROR(placed_.Add(&builder.ControlInput(from), *from, &mark));
  }
  tf::Node*& passed = passed_[{from, to->assigned_device_name()}];
  if (passed == nullptr) {
    tf::NodeBuilder builder(graph_.NewName(from->name() + "/sok_pass_mark"), "SokPassMark");
    TF_RETURN_IF_ERROR(placed_.Add(&builder.Input(mark), *to, &passed));
  }
  graph_.RemoveControlEdge(edge);
  graph_.AddControlEdge(passed, to);
  return tf::Status();
}

tf::Status ControlEdges::PassMarks() {
  std::vector<const tf::Edge*> edges;
  for (const tf::Edge* edge : graph_.edges()) {
    if (TakesCopy(*edge)) edges.push_back(edge);
  }
  for (const tf::Edge* edge : edges) TF_RETURN_IF_ERROR(Replace(edge));
  return tf::Status();
}

class ControlEdgesPass : public tf::GraphOptimizationPass {
 public:
  tf::Status Run(const tf::GraphOptimizationPassOptions& options) override {
    return ChangeIfOnGpu(options, [](PlacedGraph* graph) { return ControlEdges(graph).PassMarks(); });
  }
};

// Before TensorFlow cuts the graph into the parts of devices.
REGISTER_OPTIMIZATION(tf::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 1, ControlEdgesPass);

}  // namespace
}  // namespace sok

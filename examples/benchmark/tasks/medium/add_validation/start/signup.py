"""Members of a club."""


class Registry:
    def __init__(self):
        self.members = []

    def add(self, form):
        member = {"name": form["name"], "email": form["email"], "age": form["age"]}
        self.members.append(member)
        return member
